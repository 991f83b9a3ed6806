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

if TYPE_CHECKING:
    from django.db.models import Model


@dataclass(frozen=True, slots=True)
class Lifted:
    """Rules that do not hold here and now; by default all of them hold.

    Attributes:
        cross_tenant_reads: Concrete models of which the rows of all tenants may be read.
        global_writes: SYSTEM's rows may be written as well as the tenant's own, and a new row that
            names no tenant is SYSTEM's.
        unsafe_raw: SQL that the ORM has not written may run: ``raw()``, ``extra()``, ``RawSQL``.
    """

    cross_tenant_reads: frozenset[type[Model]] = frozenset()
    global_writes: bool = False
    unsafe_raw: bool = False


NOTHING = Lifted()
lifted: ContextVar[Lifted] = ContextVar("kumiko_lifted", default=NOTHING)


@contextlib.contextmanager
def reading_own() -> Iterator[None]:
    """Let a block read what the scope reads and no more: to look at a row is not to point to it."""
    token = lifted.set(replace(lifted.get(), cross_tenant_reads=frozenset()))
    try:
        yield
    finally:
        lifted.reset(token)


@contextlib.contextmanager
def reading_all(model: type[Model]) -> Iterator[None]:
    """Let a block read the rows that all tenants have of ``model``, beside what it may already."""
    before = lifted.get()
    concrete = model._meta.concrete_model or model
    token = lifted.set(replace(before, cross_tenant_reads=before.cross_tenant_reads | {concrete}))
    try:
        yield
    finally:
        lifted.reset(token)
