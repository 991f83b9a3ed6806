"""Whose records somebody sees in the admin: those of all tenants, or those of one's own only.

Whoever has the permission ``kumiko.view_all_tenants`` sees all, as do superusers. The others see
those of the tenant in whose scope the request is, which ``RequestScopeMiddleware`` says; without
one, nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse

from kumiko_django.conf import get_settings
from kumiko_django.types import ambient

PERMISSION = "kumiko.view_all_tenants"
M = TypeVar("M", bound=Model)

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = admin.ModelAdmin


class TenantBound(_ModelAdmin):
    """A read-only admin of records with a ``tenant_id``, of which not everybody sees all."""

    list_per_page = 50
    # The tables are large: nothing is counted, and only the indexed order is offered.
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    sortable_by = ()
    actions = None

    class Media:
        """The pages' own style."""

        css = {"all": ("kumiko/history.css",)}

    def sees_all_tenants(self, request: HttpRequest) -> bool:
        """Whether the user may see the records of every tenant, and of none; to be overridden."""
        user: Any = request.user
        return not get_settings().tenancy_enabled or user.has_perm(PERMISSION)

    def tenant_of(self, request: HttpRequest) -> str | None:
        """The tenant whose records are seen by whoever may not see all; to be overridden.

        Returns:
            That of the ambient scope; None shows nothing.
        """
        scope = ambient.scope.get()
        return scope.tenant_id if scope is not None and scope.mode == "tenant" else None

    def seen(self, request: HttpRequest, records: QuerySet[M]) -> QuerySet[M]:
        """Those of some records that the user may see."""
        tenant_id = only_tenant(request, self)
        if tenant_id is None:
            return records
        # Of the empty tenant there are no records.
        return records.filter(tenant_id=tenant_id) if tenant_id else records.none()

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """What the list and the pages of single records are made of."""
        return self.seen(request, super().get_queryset(request))

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The list; it takes no input."""
        if request.method not in ("GET", "HEAD"):
            raise PermissionDenied
        return super().changelist_view(request, extra_context)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Records are written by workers."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """What happened stays as it is."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Likewise."""
        return False


def only_tenant(request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> str | None:
    """None for whoever sees all; else the tenant, or empty for nothing at all."""
    if not isinstance(model_admin, TenantBound) or model_admin.sees_all_tenants(request):
        return None
    return model_admin.tenant_of(request) or ""
