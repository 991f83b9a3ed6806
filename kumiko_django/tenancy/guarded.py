"""Connections and cursors of Django that carry the scope: see ``session``.

The classes are made from those that a project uses, since it may have an engine of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from kumiko_django.exceptions import ScopeError
from kumiko_django.tenancy import session

_BESIDE: Final = frozenset({"copy", "copy_expert", "copy_from", "copy_to", "stream"})
"""Ways into the database that Django's cursors do not know, and hand on to the driver's."""


class GuardedConnection:
    """What is added to a connection."""

    def make_cursor(self, cursor: Any) -> Any:
        """A cursor that carries the scope."""
        return _guarded(super().make_cursor(cursor))  # type: ignore[misc]

    def make_debug_cursor(self, cursor: Any) -> Any:
        """The same, logged."""
        return _guarded(super().make_debug_cursor(cursor))  # type: ignore[misc]

    def close_if_unusable_or_obsolete(self) -> None:
        """At the end of a request or run: what stays open carries nothing."""
        super().close_if_unusable_or_obsolete()  # type: ignore[misc]
        if not self.in_atomic_block and self.connection is not None:  # type: ignore[attr-defined]
            session.leave(self)

    def _close(self) -> Any:
        session.hand_back(self)
        return super()._close()  # type: ignore[misc]


class GuardedCursor:
    """What is added to a cursor."""

    db: Any
    cursor: Any

    def execute(self, sql: Any, params: Any = None) -> Any:
        """Run one statement for the scope."""
        execute = super().execute  # type: ignore[misc]
        return session.run(self.db, sql, lambda: execute(sql, params))

    def executemany(self, sql: Any, param_list: Any) -> Any:
        """Run one statement for the scope, many times."""
        execute = super().executemany  # type: ignore[misc]
        return session.run(self.db, sql, lambda: execute(sql, param_list))

    def callproc(self, *args: Any, **kwargs: Any) -> Any:
        """Call a procedure for the scope."""
        call = super().callproc  # type: ignore[misc]
        return session.run(self.db, "CALL", lambda: call(*args, **kwargs))

    def __getattr__(self, name: str) -> Any:
        if name in _BESIDE:
            session.bring(self.db)
        return super().__getattr__(name)  # type: ignore[misc]


class GuardedServerCursor(GuardedCursor):
    """What is added to a cursor whose rows are fetched from the server little by little."""

    _value: session.Value | None = None

    def execute(self, sql: Any, params: Any = None) -> Any:
        """Open it for the scope, which is the one to fetch in."""
        self._value = session.wanted()
        return super().execute(sql, params)

    def fetchone(self) -> Any:
        """The next row."""
        self._refuse_other_scope()
        return super().__getattr__("fetchone")()

    def fetchmany(self, *args: Any) -> Any:
        """The next rows."""
        self._refuse_other_scope()
        return super().__getattr__("fetchmany")(*args)

    def fetchall(self) -> Any:
        """The rows that are left."""
        self._refuse_other_scope()
        return super().__getattr__("fetchall")()

    def __iter__(self) -> Iterator[Any]:
        rows = super().__iter__()  # type: ignore[misc]
        while True:
            self._refuse_other_scope()
            try:
                row = next(rows)
            except StopIteration:
                return
            yield row

    def _refuse_other_scope(self) -> None:
        now = session.wanted()
        if self._value is not None and now != self._value:
            raise ScopeError(
                "Rows that a cursor on the server was opened for in the scope of "
                f"{self._value[0] or None!r} are fetched in that of {now[0] or None!r}. Read them "
                "in the scope in which they were asked for."
            )
        # Outside of a transaction its rows were put by when it was opened.
        if not session.stands_alone(self.db):
            session.bring(self.db)


def _guarded(cursor: Any) -> Any:
    on_server = getattr(cursor.cursor, "name", None) is not None
    kind: Any = type(cursor)
    cursor.__class__ = _guarded_cursor(kind, on_server)
    return cursor


@cache
def guarded_connection(kind: type[Any]) -> type[Any]:
    """The same class of connections, with what is added."""
    if issubclass(kind, GuardedConnection):
        return kind
    return type(kind.__name__, (GuardedConnection, kind), {"__module__": kind.__module__})


@cache
def _guarded_cursor(kind: type[Any], on_server: bool) -> type[Any]:
    added = GuardedServerCursor if on_server else GuardedCursor
    return type(kind.__name__, (added, kind), {"__module__": kind.__module__})
