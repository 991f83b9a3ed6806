"""What an escape hatch has lifted of the rules of this room, for the length of a block.

The compilers ask :data:`lifted` for every statement. There is no public way to set it: the hatches
do, which check the grant and put the use on record.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kumiko_django.types import ambient

if TYPE_CHECKING:
    from django.db.models import Model


class Lease:
    """For how long something is lifted, and for which tenant.

    A ContextVar is copied into tasks and threads, and a query may be kept: these outlive the block
    that has lifted something. Its lease ends with the block, wherever they have got to.
    """

    __slots__ = ("_has_ended", "_outer", "tenant_id")

    def __init__(self, tenant_id: str, outer: Lease | None = None) -> None:
        self.tenant_id = tenant_id
        self._outer = outer
        self._has_ended = False

    def __copy__(self) -> Lease:
        return self

    def __deepcopy__(self, memo: object) -> Lease:
        return self

    def __reduce__(self) -> tuple[type[Lease], tuple[str]]:
        # One that comes out of a cache or another process has ended there.
        return _EndedLease, (self.tenant_id,)

    @property
    def is_open(self) -> bool:
        """Whether it, and all that it lies in, still lasts."""
        return not self._has_ended and (self._outer is None or self._outer.is_open)

    def end(self) -> None:
        """End it for good."""
        self._has_ended = True


class _EndedLease(Lease):
    def __init__(self, tenant_id: str) -> None:
        super().__init__(tenant_id)
        self.end()


@dataclass(frozen=True, slots=True)
class Lifted:
    """Rules that do not hold here and now; by default all of them hold.

    Attributes:
        cross_tenant_reads: Concrete models of which the rows of all tenants may be read.
        global_writes: SYSTEM's rows may be written as well as the tenant's own, and a new row that
            names no tenant is SYSTEM's.
        unsafe_raw: SQL that the ORM has not written may run: ``raw()``, ``extra()``, ``RawSQL``.
        lease: For how long, and for whom; None for a few statements of this room's own.
    """

    cross_tenant_reads: frozenset[type[Model]] = frozenset()
    global_writes: bool = False
    unsafe_raw: bool = False
    lease: Lease | None = None


NOTHING = Lifted()
lifted: ContextVar[Lifted] = ContextVar("kumiko_lifted", default=NOTHING)


def in_force(tenant_id: str | None) -> Lifted:
    """What is lifted here and now for code in the scope of a tenant."""
    found = lifted.get()
    lease = found.lease
    if lease is None or (lease.is_open and lease.tenant_id == tenant_id):
        return found
    return NOTHING


def _here() -> Lifted:
    scope = ambient.scope.get()
    return replace(in_force(None if scope is None else scope.tenant_id), lease=None)


@contextlib.contextmanager
def reading_own() -> Iterator[None]:
    """Let a block read what the scope reads and no more: to look at a row is not to point to it."""
    token = lifted.set(replace(_here(), cross_tenant_reads=frozenset()))
    try:
        yield
    finally:
        lifted.reset(token)


@contextlib.contextmanager
def reading_all(model: type[Model]) -> Iterator[None]:
    """Let a block read the rows that all tenants have of ``model``, beside what it may already."""
    before = _here()
    concrete = model._meta.concrete_model or model
    token = lifted.set(replace(before, cross_tenant_reads=before.cross_tenant_reads | {concrete}))
    try:
        yield
    finally:
        lifted.reset(token)
