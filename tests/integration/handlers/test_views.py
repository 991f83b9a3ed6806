"""Handlers as views call them, behind the middleware: the request's tenant and user, 403 else."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.http import HttpRequest, JsonResponse
from django.test import AsyncClient, Client
from django.urls import path
from pytest_django import Settings

from kumiko_django.handlers import HandlerContext, aquery, awrite, query, write
from kumiko_django.tenancy.checks import MIDDLEWARE
from tests.unit.handlers.kit import defines, user

pytestmark = pytest.mark.django_db(transaction=True)

WRITE, QUERY = "testapp:write:order", "testapp:query:order"


def tenant_of(request: HttpRequest) -> str:
    return request.path.split("/")[1]


def roles_of(one: User, tenant_id: str) -> list[str] | None:
    return ["staff"] if one.username == tenant_id else None


def sync_view(request: HttpRequest, tenant: str) -> JsonResponse:
    return JsonResponse({"written": write(WRITE, {"n": 1}), "asked": query(QUERY, {"n": 2})})


def sync_view_as_user(request: HttpRequest, tenant: str) -> JsonResponse:
    written = write(WRITE, {"n": 1}, user=request.user)
    return JsonResponse({"written": written, "asked": query(QUERY, {"n": 2}, user=request.user)})


async def async_view(request: HttpRequest, tenant: str) -> JsonResponse:
    written = await awrite(WRITE, {"n": 1})
    return JsonResponse({"written": written, "asked": await aquery(QUERY, {"n": 2})})


async def async_view_as_user(request: HttpRequest, tenant: str) -> JsonResponse:
    """``request.user`` is not loaded yet: that is left to the thread."""
    written = await awrite(WRITE, {"n": 1}, user=request.user)
    asked = await aquery(QUERY, {"n": 2}, user=request.user)
    return JsonResponse({"written": written, "asked": asked})


VIEWS = (sync_view, sync_view_as_user, async_view, async_view_as_user)
urlpatterns = [path(f"<str:tenant>/{view.__name__}", view) for view in VIEWS]


@pytest.fixture(autouse=True)
def _site(settings: Settings) -> None:
    settings.ROOT_URLCONF = __name__
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
    settings.KUMIKO = {**settings.KUMIKO, "REQUEST_TENANT": tenant_of}
    for kind in ("write", "query"):
        defines(kind, _tells, name="order")


def _tells(payload: Any, ctx: HandlerContext) -> Any:
    return [payload["n"], ctx.tenant_id, ctx.user.id]


def get(view: Any, tenant: str, who: User | None, is_async: bool) -> Any:
    address = f"/{tenant}/{view.__name__}"
    if not is_async:
        client = Client()
        if who is not None:
            client.force_login(who)
        return client.get(address)
    async_client = AsyncClient()
    if who is not None:
        async_client.force_login(who)
    return async_to_sync(async_client.get)(address)


@pytest.mark.parametrize("is_async", [False, True], ids=["wsgi", "asgi"])
@pytest.mark.parametrize("view", VIEWS)
def test_the_request_s_user_acts_in_the_request_s_tenant(view: Any, is_async: bool) -> None:
    mia = user("staff")

    answer = get(view, "acme", mia, is_async)

    assert answer.status_code == 200
    assert answer.json() == {
        "written": [1, "acme", str(mia.pk)],
        "asked": [2, "acme", str(mia.pk)],
    }


@pytest.mark.parametrize("is_async", [False, True], ids=["wsgi", "asgi"])
@pytest.mark.parametrize("view", VIEWS)
def test_whoever_may_not_gets_a_403(view: Any, is_async: bool) -> None:
    """Surroundings 2: nobody known, and a user without the role."""
    assert get(view, "acme", None, is_async).status_code == 403
    assert get(view, "acme", user("sales"), is_async).status_code == 403


@pytest.mark.parametrize("view", VIEWS)
def test_a_member_of_one_tenant_is_nobody_in_another(view: Any, settings: Settings) -> None:
    """With ``ROLES`` a user has the roles of the request's tenant, whatever groups he is in."""
    settings.KUMIKO = {**settings.KUMIKO, "ROLES": roles_of}
    owner = user("staff", name="acme")

    assert get(view, "acme", owner, False).status_code == 200
    assert get(view, "globex", owner, False).status_code == 403
