"""Managers and querysets of tenant models.

What they give is filtered when it runs (see ``compilers``), so there is little to do here: rows
that were fetched in one scope must not be read in another.
"""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from django.db import models

from kumiko_django.conf import get_settings
from kumiko_django.exceptions import ScopeError
from kumiko_django.types import ambient
from kumiko_django.types.ids import SYSTEM

M = TypeVar("M", bound=models.Model)


class _Rows:
    """The rows that a queryset keeps, together with the tenant in whose scope they were fetched.

    Not by way of ``__dict__``: to ask an instance for it makes all its attributes slower.
    """

    def __get__(self, queryset: Any, owner: type | None = None) -> Any:
        if queryset is None:
            return self
        kept = queryset._kumiko_rows
        if kept is not None and queryset._kumiko_fetched_in is not ambient.scope.get():
            self._refuse_other_scope(queryset)
        return kept

    def __set__(self, queryset: Any, rows: Any) -> None:
        queryset._kumiko_rows = rows
        if rows is not None:
            queryset._kumiko_fetched_in = ambient.scope.get()

    def _refuse_other_scope(self, queryset: Any) -> None:
        fetched, now = _tenant(queryset._kumiko_fetched_in), _tenant(ambient.scope.get())
        if fetched != now:
            raise ScopeError(
                f"The rows of this queryset of {queryset.model._meta.label} were fetched in the "
                f"scope of {fetched!r} and are read in that of "
                f"{now!r}. Use queryset.all(), which asks again."
            )


def _tenant(scope: ambient.Scope | None) -> str | None:
    if scope is not None:
        return scope.tenant_id
    return None if get_settings().tenancy_enabled else SYSTEM


class ScopedQuerySet(models.QuerySet[M]):
    """A queryset whose rows, once fetched, are for the scope in which that was.

    A subclass of it is made a manager with ``ScopedManager.from_queryset``.
    """

    _result_cache = _Rows()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Without the rows, like Django's."""
        bare = self.__class__()
        for name, value in self.__dict__.items():
            bare.__dict__[name] = None if name == "_kumiko_rows" else copy.deepcopy(value, memo)
        return bare


class ScopedManager(models.Manager[M]):
    """The manager of tenant models; migrations do not use it."""

    use_in_migrations = False
    _queryset_class = ScopedQuerySet
