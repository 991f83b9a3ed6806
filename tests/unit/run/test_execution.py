"""Calling handlers: whatever they raise stays a result, and a stop breaks them off."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextvars import copy_context as new_context
from typing import Any, cast

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import transaction

from kumiko_django import JobContext, JobDefinition, Unrecoverable
from kumiko_django.run import execution
from kumiko_django.run.execution import BrokenOff, Executor, Raised, Returned
from kumiko_django.run.threads import HandlerThreads
from tests.app.models import Order
from tests.unit.run.deliveries import context

CTX = context()


def definition(handler: Any) -> JobDefinition:
    return JobDefinition(handler=handler, app_label="testapp", name="under-test")


@pytest.fixture
async def executor() -> AsyncIterator[Executor]:
    threads = HandlerThreads()
    yield Executor(threads)
    threads.close()


ERRORS = [
    ValueError("v"),
    SystemExit(3),
    KeyboardInterrupt(),
    GeneratorExit(),
    asyncio.CancelledError("c"),
    StopIteration(1),
    TimeoutError("t"),
]


@pytest.mark.parametrize("error", ERRORS, ids=[type(error).__name__ for error in ERRORS])
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_whatever_a_handler_raises_is_its_result(
    error: BaseException, kind: str, executor: Executor
) -> None:
    """bullmq-python 1.3: an exception that left the task would end the loop, and the worker."""

    def sync_handler(payload: Any, ctx: JobContext) -> None:
        raise error

    async def async_handler(payload: Any, ctx: JobContext) -> None:
        raise error

    handler = definition(sync_handler if kind == "sync" else async_handler)
    ending = await executor.execute(handler, {}, CTX, new_context())
    assert isinstance(ending, Raised)
    # Python itself turns a StopIteration that leaves a coroutine into a RuntimeError.
    expected = RuntimeError if kind == "async" and isinstance(error, StopIteration) else type(error)
    assert type(ending.error) is expected


async def test_a_coroutine_that_a_plain_function_returns_is_a_failure(executor: Executor) -> None:
    """Recorded as completed, the job would silently never run."""
    begun: list[str] = []

    async def inner() -> None:
        begun.append("inner")

    def outer(payload: Any, ctx: JobContext) -> Any:
        return inner()

    ending = await executor.execute(definition(outer), {}, CTX, new_context())
    assert isinstance(ending, Raised)
    assert isinstance(ending.error, Unrecoverable)
    assert "write it as async def" in str(ending.error)
    assert begun == []


async def test_work_that_a_handler_returns_undone_is_a_failure(executor: Executor) -> None:
    """The same for an ``await`` that was forgotten, and for generators behind plain functions."""
    begun: list[str] = []

    async def inner() -> None:
        begun.append("inner")

    def generator() -> Iterator[None]:
        begun.append("generator")
        yield

    async def agenerator() -> AsyncIterator[None]:
        begun.append("agenerator")
        yield

    def plain(work: Any) -> Any:
        return lambda payload, ctx: work()

    def on_loop(work: Any) -> Any:
        async def handler(payload: Any, ctx: JobContext) -> Any:
            return work()

        return handler

    cases = [(on_loop(inner), "await it")]
    cases += [
        (made(work), "generator, which nothing iterates")
        for made in (plain, on_loop)
        for work in (generator, agenerator)
    ]
    for handler, message in cases:
        ending = await executor.execute(definition(handler), {}, CTX, new_context())
        assert isinstance(ending, Raised), handler
        assert isinstance(ending.error, Unrecoverable)
        assert message in str(ending.error)
    assert begun == []


async def test_a_handler_that_cancels_its_own_task_has_failed(executor: Executor) -> None:
    """bullmq-python 1.3: libraries cancel the task that they run in; ours must not end by it."""

    async def awaits(payload: Any, ctx: JobContext) -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        return "not reached"

    async def returns(payload: Any, ctx: JobContext) -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return "returned all the same"

    for handler in (awaits, returns):
        ending = await executor.execute(definition(handler), {}, CTX, new_context())
        assert isinstance(ending, Raised), handler
        assert isinstance(ending.error, asyncio.CancelledError)
    assert await executor.execute(
        definition(lambda payload, ctx: 1), {}, CTX, new_context()
    ) == Returned(1)


async def test_sync_handlers_do_not_occupy_the_loop(executor: Executor) -> None:
    """P34."""
    go = threading.Event()

    def waits(payload: Any, ctx: JobContext) -> bool:
        return go.wait(10)

    work = asyncio.ensure_future(executor.execute(definition(waits), {}, CTX, new_context()))
    await asyncio.sleep(0)
    go.set()
    assert await work == Returned(True)


async def test_an_interruption_leaves_a_thread_behind(executor: Executor) -> None:
    """P88, user-needs 45: threads cannot be stopped; the process ends them."""
    began, go = threading.Event(), threading.Event()

    def hangs(payload: Any, ctx: JobContext) -> None:
        began.set()
        go.wait(20)

    work = asyncio.ensure_future(executor.execute(definition(hangs), {}, CTX, new_context()))
    await asyncio.to_thread(began.wait, 10)
    executor.interrupt()
    assert await asyncio.wait_for(work, 2) == BrokenOff()
    go.set()


async def test_an_interrupted_async_handler_may_clean_up(executor: Executor) -> None:
    steps: list[str] = []
    began = asyncio.Event()

    async def tidy(payload: Any, ctx: JobContext) -> None:
        try:
            began.set()
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            steps.append("cleaned up")

    work = asyncio.ensure_future(executor.execute(definition(tidy), {}, CTX, new_context()))
    await began.wait()
    executor.interrupt()
    assert await asyncio.wait_for(work, 5) == BrokenOff()
    assert steps == ["cleaned up"]


async def test_what_is_finished_instead_of_cancelled_is_done(executor: Executor) -> None:
    """Given back, it would be done twice."""
    began = asyncio.Event()

    async def finishes(payload: Any, ctx: JobContext) -> str:
        began.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)
        return "done all the same"

    work = asyncio.ensure_future(executor.execute(definition(finishes), {}, CTX, new_context()))
    await began.wait()
    executor.interrupt()
    assert await asyncio.wait_for(work, 5) == Returned("done all the same")


async def test_one_that_fails_because_it_was_cancelled_is_given_back(executor: Executor) -> None:
    began = asyncio.Event()

    async def breaks(payload: Any, ctx: JobContext) -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            raise ValueError("cannot clean up")

    work = asyncio.ensure_future(executor.execute(definition(breaks), {}, CTX, new_context()))
    await began.wait()
    executor.interrupt()
    assert await asyncio.wait_for(work, 5) == BrokenOff()


async def test_one_that_ignores_its_cancellation_is_left_behind(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "CANCEL_SECONDS", 0.1)
    began, go = asyncio.Event(), asyncio.Event()

    async def stubborn(payload: Any, ctx: JobContext) -> None:
        began.set()
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    work = asyncio.ensure_future(executor.execute(definition(stubborn), {}, CTX, new_context()))
    await began.wait()
    executor.interrupt()
    assert await asyncio.wait_for(work, 5) == BrokenOff()
    go.set()


async def test_after_an_interruption_nothing_begins(executor: Executor) -> None:
    calls: list[str] = []

    async def on_loop(payload: Any, ctx: JobContext) -> None:
        calls.append("async")

    executor.interrupt()
    for handler in (on_loop, lambda payload, ctx: calls.append("sync")):
        assert await executor.execute(definition(handler), {}, CTX, new_context()) == BrokenOff()
    await asyncio.sleep(0.05)
    assert calls == []


async def test_async_runs_do_not_queue_for_one_thread(executor: Executor) -> None:
    """asgiref has one thread for all of a process; three runs that meet in theirs prove ours."""
    meet = threading.Barrier(3, timeout=5)

    async def meets(payload: Any, ctx: JobContext) -> int:
        await sync_to_async(meet.wait)()
        return await sync_to_async(threading.get_ident)()

    endings = await asyncio.gather(
        *(executor.execute(definition(meets), {}, CTX, new_context()) for _ in range(3))
    )
    assert len({cast("Returned", ending).value for ending in endings}) == 3


async def test_a_busy_thread_of_an_async_run_does_not_block_the_loop(executor: Executor) -> None:
    """The run lets go of a thread that still works (a time-out around sync_to_async)."""
    go = threading.Event()

    async def lets_go(payload: Any, ctx: JobContext) -> str:
        try:
            await asyncio.wait_for(asyncio.shield(sync_to_async(go.wait)(10)), 0.05)
        except TimeoutError:
            return "let go"
        return "waited"

    began = time.monotonic()
    assert await executor.execute(definition(lets_go), {}, CTX, new_context()) == Returned("let go")
    assert time.monotonic() - began < 2
    go.set()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_both_kinds_use_the_orm(kind: str, executor: Executor) -> None:
    """user-needs 22: queries, transactions, and each from the other's world."""

    def in_transaction(number: str) -> None:
        with transaction.atomic():
            Order.objects.create(tenant_id="acme", number=number)

    def sync_handler(payload: Any, ctx: JobContext) -> int:
        in_transaction("1")

        async def create() -> None:
            await Order.objects.acreate(tenant_id="acme", number="2")

        async_to_sync(create)()
        return Order.objects.count()

    async def async_handler(payload: Any, ctx: JobContext) -> int:
        await sync_to_async(in_transaction)("1")
        await Order.objects.acreate(tenant_id="acme", number="2")
        return await Order.objects.acount()

    handler = sync_handler if kind == "sync" else async_handler
    assert await executor.execute(definition(handler), {}, CTX, new_context()) == Returned(2)
