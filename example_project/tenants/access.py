"""From a request to its tenant."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from example_project.tenants.models import Tenant
from kumiko_django import BrokerUnavailable, current_tenant_id

P = ParamSpec("P")
TenantView = Callable[Concatenate[HttpRequest, Tenant, P], HttpResponseBase]


def tenant_of(request: HttpRequest) -> str | None:
    """The tenant in the URL, if the caller shows that tenant's key (``REQUEST_TENANT``)."""
    in_url = re.match(r"/t/([^/]+)/", request.path_info)
    tenant = in_url and Tenant.objects.active().filter(pk=in_url[1]).first()
    return tenant.pk if tenant and tenant.accepts_api_key(_bearer_token(request)) else None


def tenant_view(view: TenantView[P]) -> Callable[..., HttpResponseBase]:
    """Give a view the tenant of the request as its second argument.

    The middleware has the view run in that tenant's scope, so all that it dispatches belongs to it.
    """

    @csrf_exempt  # callers show a key in a header, which a browser does not send by itself
    @functools.wraps(view)
    def for_tenant(request: HttpRequest, tenant_id: str, **kwargs: Any) -> HttpResponseBase:
        if current_tenant_id() != tenant_id:
            return JsonResponse({"error": "no such tenant, or not its key"}, status=403)
        try:
            tenant = Tenant.objects.get(pk=tenant_id)
            return view(request, tenant, **kwargs)  # type: ignore[call-arg]  # from the URL
        except BrokerUnavailable:
            return JsonResponse(
                {"error": "please try again"}, status=503, headers={"Retry-After": "5"}
            )

    return for_tenant


def _bearer_token(request: HttpRequest) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
