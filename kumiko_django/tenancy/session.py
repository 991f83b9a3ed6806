"""What a connection to PostgreSQL carries: the tenant in scope, for the policies of its tables.

Before each statement the scope is compared with what the connection carries, and sent where it
differs. In a transaction it is set for that transaction only, so that what a rollback puts back is
what was true before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from django.db import Error, connections
from django.db.backends.signals import connection_created

from kumiko_django.conf import get_settings
from kumiko_django.exceptions import ScopeError
from kumiko_django.tenancy.cross_tenant import wide
from kumiko_django.tenancy.lifting import NOTHING, in_force
from kumiko_django.tenancy.policies import LIFTED_SETTING, TENANT_SETTING, words
from kumiko_django.types import ambient
from kumiko_django.types.ids import SYSTEM

Value = tuple[str, str]
"""A tenant's id and what is lifted; both empty outside of any scope."""

NONE: Final[Value] = ("", "")
_SET: Final = (
    f"SELECT set_config('{TENANT_SETTING}', %s, %s), set_config('{LIFTED_SETTING}', %s, %s)"
)
_IDLE, _IN_ERROR = 0, 3
"""States of a transaction, as libpq numbers them: none has begun, and one that has failed."""
_PLAIN: Final = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH", "(", "SAVEPOINT", "RELEASE")
_words = lru_cache(maxsize=256)(words)


class Carried:
    """What one connection of the driver carries, as far as it is known.

    Attributes:
        driver: The connection.
        session: What it carries outside of transactions, None if that is not known.
        local: What was set in the current transaction, None if nothing was or it is not known.
    """

    __slots__ = ("driver", "local", "session")

    def __init__(self, driver: Any, session: Value | None) -> None:
        self.driver, self.session = driver, session
        self.local: Value | None = None

    def forget(self) -> None:
        """Take nothing for known any more."""
        self.session = self.local = None


def wanted() -> Value:
    """What a statement here and now should find."""
    scope = ambient.scope.get()
    rules = in_force(None if scope is None else scope.tenant_id)
    if scope is not None:
        tenant_id = scope.tenant_id
    else:
        tenant_id = "" if get_settings().tenancy_enabled else SYSTEM
    if more := wide.get():
        rules = replace(rules, cross_tenant_reads=rules.cross_tenant_reads | more)
    return tenant_id, "" if rules is NOTHING else _words(replace(rules, lease=None))


def carried(db: Any) -> Carried:
    """What the connection of a database wrapper carries. A new one carries nothing."""
    known: Carried | None = db.__dict__.get("kumiko_carried")
    if known is None or known.driver is not db.connection:
        # One from a pool has been somebody else's.
        known = Carried(db.connection, None if getattr(db, "pool", None) else NONE)
        db.kumiko_carried = known
    return known


def bring(db: Any) -> None:
    """Let the connection carry what is wanted.

    Raises:
        ScopeError: It cannot, outside of a transaction and behind a pooler.
    """
    known, value = carried(db), wanted()
    driver = known.driver
    status = driver.info.transaction_status
    if status == _IN_ERROR:
        return  # in which nothing can be set, and nothing read
    if status == _IDLE:
        known.local = None
        if driver.autocommit:
            if _is_pooled(db):
                _refuse_alone(db, value)
            elif known.session != value:
                _send(db, known, value, local=False)
            return
        if known.session == value:  # which the transaction that begins now finds
            known.local = value
    if known.local != value:
        _send(db, known, value, local=True)


def _refuse_alone(db: Any, value: Value) -> None:
    if value != NONE:
        raise ScopeError(
            f"The database {db.alias!r} is behind a transaction pooler, where the tenant can be "
            "set inside transactions only. Do this inside transaction.atomic()."
        )


def _send(db: Any, known: Carried, value: Value, *, local: bool) -> None:
    # What was known is void should this fail; where a transaction fails, what was before it holds.
    known.local = None
    if not local:
        known.session = None
    with db.wrap_database_errors, known.driver.cursor() as cursor:
        cursor.execute(_SET, [value[0], local, value[1], local])
    if local:
        known.local = value
    else:
        known.session = value


def run(db: Any, sql: Any, call: Callable[[], Any]) -> Any:
    """Run a statement, carrying what is wanted.

    Raises:
        ScopeError: It would set by itself what only the scope sets.
    """
    text = sql if isinstance(sql, str) else str(sql)
    lowered = text.lower()
    alone = _is_pooled(db) and wanted() != NONE and stands_alone(db)
    begins = alone and lowered.lstrip().startswith(("begin", "start transaction"))
    if alone and not begins:
        return _in_transaction(db, lambda: run(db, sql, call))
    names_setting = TENANT_SETTING in lowered or LIFTED_SETTING in lowered
    if names_setting and ambient.scope.get() is not None:
        raise ScopeError(
            f"SQL of your own names {TENANT_SETTING} or {LIFTED_SETTING}, which only the scope "
            "sets. Use tenant_scope() or system_scope()."
        )
    if not (begins or _is_end_of_savepoint(lowered)):
        bring(db)
    if text.startswith(_PLAIN) and ";" not in text and "set_config" not in lowered:
        return call()
    try:
        return call()
    finally:
        # It may have ended a transaction, gone back to a savepoint, or reset the session.
        carried(db).forget()


def _is_end_of_savepoint(lowered: str) -> bool:
    """Whether it is what Django says after a failure, when nothing else may be said."""
    return lowered.startswith("rollback to savepoint") and ";" not in lowered


def _is_pooled(db: Any) -> bool:
    """Whether each transaction may get another session of the server (PgBouncer)."""
    return bool(db.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"))


def stands_alone(db: Any) -> bool:
    """Whether no transaction is open, and a statement would be one of its own."""
    driver = db.connection
    return bool(driver.autocommit) and driver.info.transaction_status == _IDLE


def _in_transaction(db: Any, call: Callable[[], Any]) -> Any:
    db.set_autocommit(False)
    try:
        result = call()
        db.commit()
    except BaseException:
        try:
            db.rollback()
            db.set_autocommit(True)
        except Error:
            db.close()
        raise
    db.set_autocommit(True)
    return result


def leave(db: Any) -> None:
    """Let a connection carry nothing, before it waits for whoever uses it next."""
    known: Carried | None = db.__dict__.get("kumiko_carried")
    if known is None or known.driver is not db.connection or known.session == NONE:
        return
    try:
        _send(db, known, NONE, local=False)
    except Error:
        db.close()


def hand_back(db: Any) -> None:
    """Let a connection carry nothing, before a pool gets it; or close it, if that fails."""
    known: Carried | None = db.__dict__.pop("kumiko_carried", None)
    if known is None or known.driver is not db.connection or not getattr(db, "pool", None):
        return
    if known.session == NONE:
        return
    try:
        known.driver.rollback()
        known.driver.autocommit = True
        _send(db, known, NONE, local=False)
    except Error:
        with contextlib.suppress(Exception):
            known.driver.close()


def guard(connection: Any) -> None:
    """Let a connection carry the scope from now on, if it is one to PostgreSQL and it should."""
    from kumiko_django.tenancy.guarded import guarded_connection

    if connection.vendor == "postgresql" and get_settings().row_level_security:
        kind: Any = type(connection)
        connection.__class__ = guarded_connection(kind)


def _created(connection: Any, **_: object) -> None:
    guard(connection)


def install() -> None:
    """Guard the connections of this process: those that will be made, and that are there."""
    connection_created.connect(_created, dispatch_uid="kumiko_django.tenancy.session.created")
    for connection in connections.all(initialized_only=True):
        if connection.connection is not None:
            guard(connection)
