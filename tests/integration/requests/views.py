"""Views that say what is ambient in them, and a URLconf of their own."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth import login
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import (
    FileResponse,
    Http404,
    HttpRequest,
    HttpResponse,
    JsonResponse,
    StreamingHttpResponse,
)
from django.urls import path

from kumiko_django import current_tenant_id, tenant_scope
from kumiko_django.types import ambient
from tests.app.jobs import record

Facts = dict[str, Any]

afterwards: list[Facts] = []
"""What held at the end of a streamed answer."""


def facts() -> Facts:
    scope, origin = ambient.scope.get(), ambient.write_origin.get()
    return {
        "tenant": None if scope is None else scope.tenant_id,
        "user": ambient.user_id.get(),
        "request_id": ambient.request_id.get(),
        "correlation_id": ambient.correlation_id.get(),
        "origin": None if origin is None else origin.root,
    }


NOTHING: Facts = dict.fromkeys(("tenant", "user", "request_id", "correlation_id", "origin"))


def tenant_of(request: HttpRequest) -> str | None:
    """``REQUEST_TENANT``: the path says the tenant, as a subdomain does elsewhere."""
    assert ambient.scope.get() is None
    match request.path.split("/")[1]:
        case "nobody":
            return None
        case "unknown":
            raise Http404
        case "barred":
            raise PermissionDenied
        case tenant:
            return tenant


async def atenant_of(request: HttpRequest) -> str | None:
    """The same, as a coroutine function that asks the database."""
    await User.objects.acount()
    return tenant_of(request)


def look(request: HttpRequest, tenant: str) -> JsonResponse:
    return JsonResponse(facts())


async def alook(request: HttpRequest, tenant: str) -> JsonResponse:
    here = facts()
    return JsonResponse(here | {"thread": await sync_to_async(facts)() == here})


def dispatches(request: HttpRequest, tenant: str) -> JsonResponse:
    return JsonResponse({"job": record.dispatch().job_id})


async def adispatches(request: HttpRequest, tenant: str) -> JsonResponse:
    from kumiko_django import adispatch

    return JsonResponse({"job": (await adispatch(record)).job_id})


def fails(request: HttpRequest, tenant: str) -> HttpResponse:
    raise ValueError("the view's")


def leaves_a_scope(request: HttpRequest, tenant: str) -> HttpResponse:
    """As a careless developer does."""
    tenant_scope("left-behind").__enter__()
    ambient.user_id.set("left-behind")
    return HttpResponse()


def logs_in(request: HttpRequest, tenant: str) -> JsonResponse:
    """Who began the chain was nobody; a login in the middle of it changes nothing."""
    login(request, User.objects.get(), backend="django.contrib.auth.backends.ModelBackend")
    return JsonResponse(facts())


def threads(request: HttpRequest, tenant: str) -> JsonResponse:
    seen: dict[str, Facts] = {}

    def note(name: str) -> None:
        seen[name] = facts()

    context = contextvars.copy_context()
    targets: dict[str, Callable[[], None]] = {
        "plain": lambda: note("plain"),
        "copied": lambda: context.run(note, "copied"),
    }
    for target in targets.values():
        thread = threading.Thread(target=target)
        thread.start()
        thread.join()
    return JsonResponse(seen | {"view": facts()})


def streams(request: HttpRequest, tenant: str) -> StreamingHttpResponse:
    def parts() -> Iterator[str]:
        try:
            for _ in range(3):
                yield f"{current_tenant_id()} {ambient.user_id.get()}\n"
        finally:
            afterwards.append(facts())

    return StreamingHttpResponse(parts())


def astreams(request: HttpRequest, tenant: str) -> StreamingHttpResponse:
    async def parts() -> AsyncIterator[str]:
        for _ in range(3):
            inside = await sync_to_async(current_tenant_id)()
            yield f"{inside} {ambient.user_id.get()}\n"
        afterwards.append(facts())

    return StreamingHttpResponse(parts())


def stream_fails(request: HttpRequest, tenant: str) -> StreamingHttpResponse:
    def parts() -> Iterator[str]:
        yield f"{current_tenant_id()}\n"
        raise ValueError("the stream's")

    return StreamingHttpResponse(parts())


def sends_file(request: HttpRequest, tenant: str) -> FileResponse:
    return FileResponse(Path(__file__).open("rb"))


def says_its_own_ids(request: HttpRequest, tenant: str) -> HttpResponse:
    return HttpResponse(headers={"X-Request-ID": "the view's"})


urlpatterns = [
    path("<str:tenant>/look", look),
    path("<str:tenant>/alook", alook),
    path("<str:tenant>/dispatches", dispatches),
    path("<str:tenant>/adispatches", adispatches),
    path("<str:tenant>/fails", fails),
    path("<str:tenant>/leaves", leaves_a_scope),
    path("<str:tenant>/logs-in", logs_in),
    path("<str:tenant>/threads", threads),
    path("<str:tenant>/streams", streams),
    path("<str:tenant>/astreams", astreams),
    path("<str:tenant>/stream-fails", stream_fails),
    path("<str:tenant>/file", sends_file),
    path("<str:tenant>/own-ids", says_its_own_ids),
]
