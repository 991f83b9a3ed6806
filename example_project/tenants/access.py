"""From a request to its tenant."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from example_project.tenants.models import Tenant
from kumiko_django import BrokerUnavailable, tenant_scope

P = ParamSpec("P")
TenantView = Callable[Concatenate[HttpRequest, Tenant, P], HttpResponseBase]


def tenant_view(view: TenantView[P]) -> Callable[..., HttpResponseBase]:
    """Run a view for the tenant in its URL, if the caller shows that tenant's key.

    The view gets the tenant as its second argument, and all that it dispatches belongs to that
    tenant, since it runs inside ``tenant_scope``.
    """

    @csrf_exempt  # callers show a key in a header, which a browser does not send by itself
    @functools.wraps(view)
    def for_tenant(request: HttpRequest, tenant_id: str, **kwargs: Any) -> HttpResponseBase:
        tenant = Tenant.objects.active().filter(pk=tenant_id).first()
        if tenant is None or not tenant.accepts_api_key(_bearer_token(request)):
            return JsonResponse({"error": "no such tenant, or not its key"}, status=403)
        with tenant_scope(tenant.pk):
            try:
                return view(request, tenant, **kwargs)  # type: ignore[call-arg]  # from the URL
            except BrokerUnavailable:
                return JsonResponse(
                    {"error": "please try again"}, status=503, headers={"Retry-After": "5"}
                )

    return for_tenant


def _bearer_token(request: HttpRequest) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
