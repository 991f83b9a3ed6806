"""``RequestScopeMiddleware``: a request is for one tenant, from one user, in one chain of work.

All of it is ambient while the view runs and while a streamed answer is sent, and gone afterwards,
whatever happens. So what a view dispatches belongs to the tenant, names the user, carries the
correlation id, and is barred from personal data where nobody has logged in (B170).
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, TypeAlias, cast
from uuid import uuid4

from asgiref.sync import async_to_sync, iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.http import HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase

from kumiko_django.conf import get_settings
from kumiko_django.exceptions import ScopeError
from kumiko_django.tenancy.scope import clean_tenant_id
from kumiko_django.types import ambient
from kumiko_django.types.correlation import id_of_header
from kumiko_django.types.dotted import load_callable
from kumiko_django.types.ids import SYSTEM
from kumiko_django.types.origin import WriteOrigin

REQUEST_ID_HEADER: Final = "X-Request-ID"
CORRELATION_ID_HEADER: Final = "X-Correlation-ID"

Values: TypeAlias = dict[ContextVar[Any], Any]
GetResponse: TypeAlias = Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]]


class RequestScopeMiddleware:
    """Put it behind ``AuthenticationMiddleware``; ``KUMIKO["REQUEST_TENANT"]`` says the tenant."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        """Answer a request; what ``REQUEST_TENANT`` raises is answered as what a view raises.

        Raises:
            ScopeError: ``REQUEST_TENANT`` gives an unusable id.
            SettingsError: It cannot be called.
        """
        if iscoroutinefunction(self):
            return self._answer(request)
        values, tenant = _read(request)
        with ambient.entered(values):
            if inspect.isawaitable(tenant):
                tenant = async_to_sync(_awaited)(tenant)
            values[ambient.scope] = _scope_of(tenant)
            with ambient.entered({ambient.scope: values[ambient.scope]}):
                response = cast("HttpResponseBase", self._get_response(request))
        return _carrying(response, values)

    async def _answer(self, request: HttpRequest) -> HttpResponseBase:
        # request.user is lazy and may ask the database; so may REQUEST_TENANT.
        values, tenant = await sync_to_async(_read)(request)
        with ambient.entered(values):
            if inspect.isawaitable(tenant):
                tenant = await tenant
            values[ambient.scope] = _scope_of(tenant)
            with ambient.entered({ambient.scope: values[ambient.scope]}):
                response = await cast("Awaitable[HttpResponseBase]", self._get_response(request))
        return _carrying(response, values)


def _read(request: HttpRequest) -> tuple[Values, Any]:
    """All but the scope, and what ``REQUEST_TENANT`` gives, which is asked with the rest in place.

    The second is an id, None, or something to be awaited.
    """
    values = _values_of(request)
    settings = get_settings()
    if settings.request_tenant is None or not settings.tenancy_enabled:
        return values, None
    tenant_of = load_callable("REQUEST_TENANT", settings.request_tenant, "of the request")
    with ambient.entered(values):
        return values, tenant_of(request)


def _values_of(request: HttpRequest) -> Values:
    user: Any = getattr(request, "user", None)
    known = user is not None and user.is_authenticated and user.pk is not None
    user_id = str(user.pk) if known else None
    request_id = id_of_header(request.headers.get(REQUEST_ID_HEADER)) or str(uuid4())
    correlation_id = id_of_header(request.headers.get(CORRELATION_ID_HEADER)) or request_id
    return {
        ambient.scope: None,
        ambient.user_id: user_id,
        ambient.request_id: request_id,
        ambient.correlation_id: correlation_id,
        ambient.write_origin: WriteOrigin("anonymous" if user_id is None else "user"),
        ambient.handler: None,
        ambient.accepts_personal_data: None,
        ambient.view_name: partial(_view_of, request),
        ambient.feature: None,
    }


def _view_of(request: HttpRequest) -> str:
    return "" if request.resolver_match is None else request.resolver_match.view_name


async def _awaited(tenant: Awaitable[Any]) -> Any:
    return await tenant


def _scope_of(tenant: Any) -> ambient.Scope | None:
    if tenant is None:
        return None
    tenant_id = clean_tenant_id(tenant)
    if tenant_id == SYSTEM:
        raise ScopeError(
            'KUMIKO["REQUEST_TENANT"] gives SYSTEM, which is no tenant. Give None, and use '
            "system_scope('why') in the views that work for none."
        )
    return ambient.Scope(tenant_id, "tenant")


def _carrying(response: HttpResponseBase, values: Values) -> HttpResponseBase:
    """The response with its ids; if it is streamed, with the values while it is made."""
    response.headers.setdefault(REQUEST_ID_HEADER, values[ambient.request_id])
    response.headers.setdefault(CORRELATION_ID_HEADER, values[ambient.correlation_id])
    # What a file has needs no scope, and Django has its own ways to send one.
    is_file = getattr(response, "file_to_stream", None) is not None
    if isinstance(response, StreamingHttpResponse) and not is_file:
        _stream_with(response, lambda: ambient.entered(values))
    return response


def _stream_with(
    response: StreamingHttpResponse, entered: Callable[[], AbstractContextManager[None]]
) -> None:
    # The blocks end before each part is handed out: between two parts, whoever sends them does
    # other things in the same thread or task.
    def parts(content: Iterator[bytes]) -> Iterator[bytes]:
        while True:
            with entered():
                try:
                    part = next(content)
                except StopIteration:
                    return
            yield part

    async def aparts(content: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        while True:
            with entered():
                try:
                    part = await anext(content)
                except StopAsyncIteration:
                    return
            yield part

    def closing(close: Callable[[], Any]) -> Callable[[], Any]:
        def close_entered() -> Any:
            with entered():
                return close()

        return close_entered

    # What a generator does at its end, when the client has gone, is part of the answer.
    closers: list[Callable[[], Any]] = getattr(response, "_resource_closers", [])
    closers[:] = [closing(close) for close in closers]
    if response.is_async:
        content = cast("AsyncIterator[bytes]", response.streaming_content)
        response.streaming_content = aparts(content)
    else:
        response.streaming_content = parts(cast("Iterator[bytes]", response.streaming_content))
