"""Blocks in which a rule of the scope is lifted, sync and async.

It is lifted in the run's scope for what the block calls, the threads of ``sync_to_async`` included.
All rules hold in another scope that is entered inside of it, and for what outlives it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Literal

from asgiref.sync import sync_to_async
from django.db import connections

from kumiko_django.exceptions import ScopeError
from kumiko_django.tenancy.escape import RunHatches
from kumiko_django.tenancy.lifting import Lease, Lifted, in_force, lifted

Rule = Literal["global_writes", "unsafe_raw"]
_CALLS: Final[dict[Rule, str]] = {
    "global_writes": "ctx.db.global_writes()",
    "unsafe_raw": "ctx.db.unsafe_raw()",
}


class _Lifting:
    """One entering of a block."""

    def __init__(self, hatches: RunHatches, rule: Rule) -> None:
        self._hatches, self._rule = hatches, rule
        self._reason = hatches.reason_for(rule, _CALLS[rule])
        self._lease: Lease | None = None
        self._before: Lifted | None = None

    def _open(self) -> None:
        if self._before is not None:
            raise ScopeError(f"{_CALLS[self._rule]} is entered twice; call it for each block.")
        self._hatches.used(self._rule, self._reason, _CALLS[self._rule])
        tenant_id = self._hatches.tenant_id
        outer = in_force(tenant_id)
        self._before = lifted.get()
        self._lease = Lease(tenant_id, outer.lease or self._hatches.lease)
        changes: dict[str, Any] = {self._rule: True, "lease": self._lease}
        lifted.set(replace(outer, **changes))

    def _close(self) -> None:
        if self._lease is not None and self._before is not None:
            self._lease.end()
            lifted.set(self._before)


class GlobalWrites(_Lifting):
    """Within the block SYSTEM's rows may be written, too; a new row that names no tenant is one."""

    def __init__(self, hatches: RunHatches) -> None:
        super().__init__(hatches, "global_writes")

    def __enter__(self) -> None:
        self._open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close()

    async def __aenter__(self) -> None:
        self._open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close()


class AsyncCursor:
    """A cursor for async code: each call is made in the run's thread."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    @property
    def description(self) -> Any:
        """The columns of the answer, as the database's driver describes them."""
        return self._cursor.description

    @property
    def rowcount(self) -> int:
        """How many rows the last statement was about."""
        count: int = self._cursor.rowcount
        return count

    async def execute(self, sql: str, params: Any = None) -> None:
        """Run a statement."""
        await sync_to_async(self._cursor.execute)(sql, params)

    async def executemany(self, sql: str, rows: Sequence[Any]) -> None:
        """Run a statement once for each row of parameters."""
        await sync_to_async(self._cursor.executemany)(sql, rows)

    async def fetchone(self) -> tuple[Any, ...] | None:
        """The next row."""
        row: tuple[Any, ...] | None = await sync_to_async(self._cursor.fetchone)()
        return row

    async def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows that are left."""
        rows: list[tuple[Any, ...]] = await sync_to_async(self._cursor.fetchall)()
        return rows


class RawSql(_Lifting):
    """Gives a cursor, and lets ``raw()``, ``extra()`` and ``RawSQL`` pass within the block."""

    def __init__(self, hatches: RunHatches, using: str) -> None:
        super().__init__(hatches, "unsafe_raw")
        self._using = using
        self._cursor: Any = None

    def __enter__(self) -> Any:
        self._open()
        try:
            self._cursor = connections[self._using].cursor()
        except BaseException:
            self._close()
            raise
        return self._cursor

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close()
        self._cursor.close()

    async def __aenter__(self) -> AsyncCursor:
        self._open()
        try:
            self._cursor = await sync_to_async(lambda: connections[self._using].cursor())()
        except BaseException:
            self._close()
            raise
        return AsyncCursor(self._cursor)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close()
        await sync_to_async(self._cursor.close)()
