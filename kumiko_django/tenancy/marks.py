"""What is noted on a query: that it chooses rows to be written, or whose it is.

Plain attributes of ``django.db.models.sql.Query``: its clones and pickles keep them.
"""

from __future__ import annotations

from typing import Any, TypeVar

from django.db.models import QuerySet

from kumiko_django.exceptions import ScopeError
from kumiko_django.tenancy.scope import current_tenant_id

QS = TypeVar("QS", bound="QuerySet[Any]")
WRITES = "kumiko_writes"
PIN = "kumiko_pinned_to"


def for_writing(queryset: QS) -> QS:
    """A copy that finds only what the scope may write: its tenant's own rows."""
    copy = queryset.all()
    setattr(copy.query, WRITES, True)
    return copy


def pinned(queryset: QS) -> QS:
    """A copy that belongs to the current scope: running it in another one is refused.

    Raises:
        ScopeError: There is no scope.
    """
    tenant_id = current_tenant_id()
    if tenant_id is None:
        raise ScopeError(
            f"A query of {queryset.model._meta.label} is pinned outside of any scope. Do it inside "
            "`with tenant_scope(tenant_id):`."
        )
    return pinned_to(queryset, tenant_id)


def pinned_to(queryset: QS, tenant_id: str) -> QS:
    """A copy that belongs to the scope of a tenant: running it in another one is refused."""
    copy = queryset.all()
    copy.query.__dict__[PIN] = tenant_id
    return copy


def pinned_tenant(query: Any) -> str | None:
    """The tenant to whose scope a query is pinned, None for most."""
    found: str | None = getattr(query, PIN, None)
    return found
