"""Managers and querysets of tenant models.

What they give is filtered when it runs (see ``compilers``), so there is little to do here: rows
that were fetched in one scope must not be read in another.
"""

from __future__ import annotations

from typing import Any, TypeVar

from django.db import models

from kumiko_django.exceptions import ScopeError
from kumiko_django.tenancy.scope import current_tenant_id

M = TypeVar("M", bound=models.Model)
_CACHE = "_result_cache"
_FETCHED_IN = "_kumiko_fetched_in"


class _Rows:
    """The rows that a queryset keeps, together with the tenant in whose scope they were fetched."""

    def __get__(self, queryset: Any, owner: type | None = None) -> Any:
        if queryset is None:
            return self
        kept = queryset.__dict__.get(_CACHE)
        if kept is not None:
            fetched_in = queryset.__dict__.get(_FETCHED_IN)
            if fetched_in != current_tenant_id():
                raise ScopeError(
                    f"The rows of this queryset of {queryset.model._meta.label} were fetched in "
                    f"the scope of {fetched_in!r} and are read in that of "
                    f"{current_tenant_id()!r}. Use queryset.all(), which asks again."
                )
        return kept

    def __set__(self, queryset: Any, rows: Any) -> None:
        queryset.__dict__[_CACHE] = rows
        queryset.__dict__[_FETCHED_IN] = None if rows is None else current_tenant_id()


class ScopedQuerySet(models.QuerySet[M]):
    """A queryset whose rows, once fetched, are for the scope in which that was.

    A subclass of it is made a manager with ``ScopedManager.from_queryset``.
    """

    _result_cache = _Rows()


class ScopedManager(models.Manager[M]):
    """The manager of tenant models; migrations do not use it."""

    use_in_migrations = False
    _queryset_class = ScopedQuerySet
