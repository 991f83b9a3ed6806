"""Async code is asked for its transaction wherever it may have one, and only there (P64)."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from asgiref.sync import SyncToAsync, ThreadSensitiveContext, async_to_sync, sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.core.asgi import get_asgi_application
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path
from pytest_django import Settings

from kumiko_django import Dispatched, adispatch
from kumiko_django.dispatching.asking import sync_code_has_run
from tests.app.jobs import record
from tests.app.models import Order
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.queues import QueueState

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def queue(queue_state: QueueStateFactory) -> QueueState:
    return queue_state("worker")


@pytest.fixture
def fresh_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadPoolExecutor]:
    """The thread that asgiref keeps for a whole process, as in one that has just begun."""
    with ThreadPoolExecutor(max_workers=1) as executor:
        monkeypatch.setattr(SyncToAsync, "single_thread_executor", executor)
        yield executor
        if executor._threads:
            executor.submit(connections.close_all).result()


async def send() -> Dispatched:
    return await adispatch(record, {}, tenant_id="acme")


@contextlib.asynccontextmanager
async def in_atomic() -> AsyncIterator[None]:
    """A transaction in the thread of sync code, as a view's helper opens one."""
    atomic = transaction.atomic()
    await sync_to_async(atomic.__enter__)()
    try:
        yield
    finally:
        await sync_to_async(atomic.__exit__)(None, None, None)


async def waits_for_the_commit(queue: QueueState) -> None:
    async with in_atomic():
        sent = await send()
        assert sent.reason == "after-commit"
        assert queue.pending() == 0
    assert queue.wait == [sent.job_id]
    await sync_to_async(connections.close_all)()  # the thread ends with its context


def test_on_a_plain_loop(queue: QueueState, fresh_thread: ThreadPoolExecutor) -> None:
    """P64: a script with ``asyncio.run``."""
    asyncio.run(waits_for_the_commit(queue))


async def test_in_a_context_of_its_own(queue: QueueState) -> None:
    """P64: what Django's ASGI handler opens for each request."""
    async with ThreadSensitiveContext():
        await waits_for_the_commit(queue)


def test_in_a_task_of_its_own(queue: QueueState, fresh_thread: ThreadPoolExecutor) -> None:
    async def main() -> None:
        await asyncio.gather(waits_for_the_commit(queue))

    asyncio.run(main())


def test_below_sync_code_in_a_transaction(
    queue: QueueState, fresh_thread: ThreadPoolExecutor
) -> None:
    """P64: ``async_to_sync`` in a view; the loop runs in another thread than the transaction."""
    with transaction.atomic():
        sent = async_to_sync(send)()
        assert (sent.reason, queue.pending()) == ("after-commit", 0)
    assert queue.wait == [sent.job_id]


def test_below_sync_code_in_a_task_with_a_bare_context(
    queue: QueueState, fresh_thread: ThreadPoolExecutor
) -> None:
    """asgiref finds the thread by the loop where a task has not inherited who called."""

    async def main() -> Dispatched:
        return await asyncio.create_task(send(), context=contextvars.Context())

    with transaction.atomic():
        sent = async_to_sync(main)()
        assert (sent.reason, queue.pending()) == ("after-commit", 0)
    assert queue.wait == [sent.job_id]


# ------------------------------------------------------------------------------------- requests


async def atomic_view(request: HttpRequest) -> HttpResponse:
    async with in_atomic():
        await Order.objects.acreate(tenant_id="acme", number="1")
        sent = await send()
        pending = await sync_to_async(request.state.pending)()  # type: ignore[attr-defined]
        return HttpResponse(f"{sent.reason} {pending}")


async def plain_view(request: HttpRequest) -> HttpResponse:
    asked = sync_code_has_run()
    sent = await send()
    context = SyncToAsync.thread_sensitive_context.get()
    hopped = context in SyncToAsync.context_to_thread_executor
    return HttpResponse(f"{sent.reason} {asked} {hopped}")


urlpatterns = [path("atomic", atomic_view), path("plain", plain_view)]


async def ask(application: Any, address: str) -> str:
    scope = {
        "type": "http", "http_version": "1.1", "method": "GET", "path": address, "headers": [],
        "query_string": b"", "server": ("localhost", 80), "client": ("localhost", 1),
    }  # fmt: skip
    communicate: Any = ApplicationCommunicator  # untyped
    communicator = communicate(application, scope)
    await communicator.send_input({"type": "http.request"})
    start = await communicator.receive_output(10)
    body = await communicator.receive_output(10)
    assert start["status"] == 200, body
    await communicator.wait()
    return str(body["body"].decode())


@pytest.fixture
def application(settings: Settings, monkeypatch: pytest.MonkeyPatch, queue: QueueState) -> Any:
    settings.ROOT_URLCONF = __name__
    settings.MIDDLEWARE = []
    monkeypatch.setattr(HttpRequest, "state", queue, raising=False)
    return get_asgi_application()


async def test_in_a_request_of_an_asgi_server(application: Any, queue: QueueState) -> None:
    """P64: each request has a thread of its own for sync code."""
    assert await ask(application, "/atomic") == "after-commit 0"
    assert queue.pending() == 1
    assert await Order.objects.acount() == 1


# --------------------------------------------------------------------------------------- no hop


def test_no_thread_is_asked_where_no_sync_code_has_run(
    queue: QueueState, fresh_thread: ThreadPoolExecutor
) -> None:
    """Design 9: going there would take several times as long as the dispatch itself."""

    async def main() -> list[Dispatched]:
        return [await send() for _ in range(3)]

    sent = asyncio.run(main())
    assert {each.reason for each in sent} == {None}
    assert queue.pending() == 3
    assert not fresh_thread._threads


async def test_a_context_without_sync_code_gets_no_thread(queue: QueueState) -> None:
    async with ThreadSensitiveContext() as context:
        assert not sync_code_has_run()
        assert (await send()).reason is None
        assert context not in SyncToAsync.context_to_thread_executor
        await sync_to_async(lambda: None)()
        assert sync_code_has_run()
        assert (await send()).reason is None
    assert queue.pending() == 2


def test_what_cannot_be_known_means_that_it_is_asked(
    queue: QueueState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An executor of the host's does not show whether it has a thread."""
    calls: list[Callable[[], Any]] = []

    class Own:
        def submit(self, function: Callable[..., Any], *args: Any) -> Any:
            calls.append(function)
            with ThreadPoolExecutor(1) as once:
                return once.submit(function, *args)

    monkeypatch.setattr(SyncToAsync, "single_thread_executor", Own())
    assert asyncio.run(send()).reason is None
    assert len(calls) == 1
