"""Queries that read the rows of all tenants: which they are stands on the query itself.

Nothing is lifted around them, so no other query, subquery or related manager is any wider for it.
A query that outlives the run that it was made for is refused, as is one in another scope.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from django.db import models

from kumiko_django.exceptions import ScopeError
from kumiko_django.tenancy.access import Access
from kumiko_django.tenancy.lifting import Lease

M = TypeVar("M", bound=models.Model)
_MARK = "kumiko_reads_all"
wide: ContextVar[frozenset[type[models.Model]]] = ContextVar("kumiko_wide", default=frozenset())
"""Of which models the statement that is being run reads all rows, for policies of the database."""


@dataclass(frozen=True, slots=True)
class _Wide:
    """Of which models all rows may be read, and for how long."""

    models: frozenset[type[models.Model]]
    lease: Lease


def reading_all_of(
    model: type[M], also: tuple[type[models.Model], ...], lease: Lease
) -> models.QuerySet[M]:
    """A queryset of all tenants' rows of ``model``, joined with all of those of ``also``."""
    queryset: models.QuerySet[M] = model._default_manager.all()
    read: tuple[type[models.Model], ...] = (model, *also)
    # A model with several tables stands in its parents', too.
    parents = (parent for each in read for parent in each._meta.all_parents)
    concrete = frozenset(each._meta.concrete_model or each for each in (*read, *parents))
    queryset.query.__dict__[_MARK] = _Wide(concrete, lease)
    return queryset


def is_wide(query: Any) -> bool:
    """Whether a query reads the rows of all tenants."""
    return _MARK in query.__dict__


@contextlib.contextmanager
def told(query: Any) -> Iterator[None]:
    """Let the connection be told for a block what such a query may read."""
    token = wide.set(query.__dict__[_MARK].models)
    try:
        yield
    finally:
        wide.reset(token)


def widened(query: Any, access: Access) -> Access:
    """What ``query`` may read, given what its scope may.

    Raises:
        ScopeError: It was to read all rows, but not now or not here.
    """
    wide: _Wide | None = query.__dict__.get(_MARK)
    if wide is None:
        return access
    if not wide.lease.is_open:
        raise ScopeError(
            f"A query of {query.model._meta.label} across tenants has outlived the run that it was "
            "made for. Take the rows out of it (list(...)) before the handler returns."
        )
    if wide.lease.tenant_id != access.tenant_id:
        raise ScopeError(
            f"A query of {query.model._meta.label} across tenants belongs to the scope of "
            f"{wide.lease.tenant_id!r}, and runs for {access.name}. Leave that scope first."
        )
    lifted = access.lifted
    both = lifted.cross_tenant_reads | wide.models
    return access._replace(lifted=replace(lifted, cross_tenant_reads=both))
