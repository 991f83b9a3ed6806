"""A handler's time is over: it is told, waited for, and its attempt has failed (P23, design 4)."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextvars import copy_context as new_context
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from kumiko_django import JobContext, JobDefinition
from kumiko_django.run.execution import BrokenOff, Executor, Overran, Returned
from kumiko_django.run.threads import HandlerThreads
from kumiko_django.run.timeouts import Stoppable, TimedOut, timed_out
from kumiko_django.types.cancellation import Cancellation
from tests.helpers.waiting import await_until, wait_until
from tests.unit.run.deliveries import context

CTX = context()
LONG = 30.0


def definition(handler: Any, timeout: float | None = 0.1) -> JobDefinition:
    return JobDefinition(handler=handler, app_label="testapp", name="under-test", timeout=timeout)


class Stuck:
    """Counts how often an executor has found a handler that does not end."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


@pytest.fixture
def stuck() -> Stuck:
    return Stuck()


@pytest.fixture
async def executor(stuck: Stuck) -> AsyncIterator[Executor]:
    threads = HandlerThreads()
    yield Executor(threads, 0.2, stuck)
    threads.close()


def busy(until: Any) -> None:
    """Compute, where the exception can strike at any time."""
    end = time.monotonic() + LONG
    while not until() and time.monotonic() < end:
        pass


def never() -> bool:
    return False


async def run(executor: Executor, handler: Any, seconds: float | None = 0.1) -> Any:
    return await executor.execute(definition(handler, seconds), {}, CTX, new_context())


# -------------------------------------------------------------------------------- sync handlers


async def test_a_sync_handler_is_told_by_an_exception(executor: Executor, stuck: Stuck) -> None:
    """P23: it may clean up; ``except Exception`` does not keep it."""
    steps: list[str] = []

    def handler(payload: Any, ctx: JobContext) -> None:
        try:
            try:
                busy(never)
            except Exception:  # noqa: BLE001 - it must not be caught here
                steps.append("caught")
        finally:
            steps.append("cleaned up")

    began = time.monotonic()
    ending = await run(executor, handler)
    assert isinstance(ending, Overran)
    assert ending.seconds == 0.1
    assert isinstance(ending.error, TimedOut)
    assert steps == ["cleaned up"]
    assert time.monotonic() - began < LONG / 2
    assert stuck.times == 0


async def test_a_handler_that_ends_by_itself_after_its_time_has_overrun(executor: Executor) -> None:
    """P23: the time limit is ours and holds, though the queue knows nothing of it."""

    def late(payload: Any, ctx: JobContext) -> str:
        time.sleep(0.2)  # a wait that nothing can break off
        return "too late"

    async def late_async(payload: Any, ctx: JobContext) -> str:
        await asyncio.sleep(0.2)
        return "too late"

    for handler in (late, late_async):
        ending = await run(executor, handler, 0.05)
        assert isinstance(ending, Overran)


async def test_whatever_it_returns_then_is_void(executor: Executor) -> None:
    """It caught what was sent; half of its work may be missing."""

    def swallows(payload: Any, ctx: JobContext) -> str:
        try:
            busy(never)
        except TimedOut:
            return "done, perhaps"
        return "never"

    async def swallows_async(payload: Any, ctx: JobContext) -> str:
        try:
            await asyncio.sleep(LONG)
        except asyncio.CancelledError:
            return "done, perhaps"
        return "never"

    for handler in (swallows, swallows_async):
        assert await run(executor, handler) == Overran(0.1)


async def test_who_is_in_time_is_not_told(executor: Executor) -> None:
    cancellation = Cancellation()

    def quick(payload: Any, ctx: JobContext) -> str:
        return "done"

    async def quick_async(payload: Any, ctx: JobContext) -> str:
        return "done"

    for handler in (quick, quick_async):
        job = definition(handler, timeout=LONG)
        ending = await executor.execute(job, {}, CTX, new_context(), cancellation)
        assert ending == Returned("done")
    assert not cancellation


async def test_no_exception_strikes_who_gets_the_thread_next(executor: Executor) -> None:
    """Sent into a thread that waits in C, it is pending when the handler returns."""
    go = threading.Event()
    threads: list[int] = []

    def waits(payload: Any, ctx: JobContext) -> None:
        threads.append(threading.get_ident())
        go.wait(LONG)

    def innocent(payload: Any, ctx: JobContext) -> str:
        threads.append(threading.get_ident())
        for _ in range(100_000):
            pass
        return "unharmed"

    work = asyncio.ensure_future(run(executor, waits, 0.05))
    await await_until(lambda: threads, description="it waits")
    await asyncio.sleep(0.1)  # the time-out passes while it waits: that is what is on show
    go.set()
    assert isinstance(await work, Overran)
    assert await run(executor, innocent, None) == Returned("unharmed")
    assert threads[0] == threads[1], "the thread is used again"


def test_stopped_at_every_moment_nothing_is_left_pending() -> None:
    """The race of an end with its time-out, thousands of times: one of the two, and never later."""
    outcomes: dict[str, int] = {"returned": 0, "timed out": 0}
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for number in range(2000):
            outcomes[_race(number % 100 * 20)] += 1
    finally:
        sys.setswitchinterval(interval)
    assert all(outcomes.values()), outcomes


def _race(rounds: int) -> str:
    begun = threading.Event()

    def work() -> str:
        begun.set()
        _spin(rounds)
        return "returned"

    def stop() -> None:
        begun.wait(5)
        stoppable.stop()

    stoppable = Stoppable(work)
    stopper = threading.Thread(target=stop)
    stopper.start()
    try:
        outcome = str(stoppable())
    except TimedOut:
        outcome = "timed out"
    _spin(50)  # what was still pending would strike here, and fail the test
    stopper.join()
    stoppable.stop()
    _spin(50)
    return outcome


def _spin(rounds: int) -> None:
    for _ in range(rounds):
        pass


@pytest.mark.parametrize("error", [None, LookupError("the handler's own")])
def test_what_has_not_struck_by_the_end_is_taken_back(
    error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P23: Python raises what was sent when it pleases. Here it never does, as in a handler that
    waits in C up to its last moment; nothing may be left for whoever gets the thread next."""
    pending: dict[int, Any] = {}

    def keeps(thread_id: ctypes.c_ulong, sent: Any) -> int:
        if sent is None:
            pending.pop(thread_id.value, None)
        else:
            pending[thread_id.value] = sent
        return 1

    def works() -> str:
        stoppable.stop()
        assert list(pending) == [threading.get_ident()], "it was sent, to this thread"
        if error is not None:
            raise error
        return "ended"

    monkeypatch.setattr(ctypes.pythonapi, "PyThreadState_SetAsyncExc", keeps)
    stoppable = Stoppable(works)
    with pytest.raises(LookupError) if error else contextlib.nullcontext():
        assert stoppable() == "ended"
    assert pending == {}
    stoppable.stop()
    assert pending == {}, "after the end nothing is sent"


def test_stopped_before_it_begins_it_does_not_begin() -> None:
    calls: list[int] = []
    stoppable = Stoppable(lambda: calls.append(1))
    stoppable.stop()
    with pytest.raises(TimedOut):
        stoppable()
    assert calls == []


# ------------------------------------------------------------------------------- async handlers


async def test_an_async_handler_is_cancelled(executor: Executor) -> None:
    steps: list[str] = []

    async def handler(payload: Any, ctx: JobContext) -> None:
        try:
            await asyncio.sleep(LONG)
        finally:
            await asyncio.sleep(0.01)
            steps.append("cleaned up")

    ending = await run(executor, handler)
    assert isinstance(ending, Overran)
    assert isinstance(ending.error, asyncio.CancelledError)
    assert steps == ["cleaned up"]


async def test_its_thread_is_waited_for_as_well(executor: Executor) -> None:
    """What it has begun in a thread (the ORM, say) goes on: no retry beside it."""
    go, ended = threading.Event(), threading.Event()

    def works() -> None:
        go.wait(LONG)
        ended.set()

    async def handler(payload: Any, ctx: JobContext) -> None:
        await sync_to_async(works)()

    work = asyncio.ensure_future(run(executor, handler, 0.05))
    await asyncio.sleep(0.15)  # longer than its time, and there is nothing else to wait for
    assert not work.done()
    go.set()
    assert isinstance(await asyncio.wait_for(work, 5), Overran)
    assert ended.is_set()


# -------------------------------------------------------------------------- those that do not end


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_one_that_does_not_end_retires_the_process(
    kind: str, executor: Executor, stuck: Stuck
) -> None:
    """Design 4: told once; its run does not end before it does."""
    go = threading.Event()
    released = asyncio.Event()

    def sync_handler(payload: Any, ctx: JobContext) -> None:
        go.wait(LONG)

    async def async_handler(payload: Any, ctx: JobContext) -> None:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue

    handler = sync_handler if kind == "sync" else async_handler
    work = asyncio.ensure_future(run(executor, handler, 0.05))
    await await_until(lambda: stuck.times, description="it is stuck")
    assert not work.done()
    go.set()
    released.set()
    assert isinstance(await asyncio.wait_for(work, 5), Overran)
    assert stuck.times == 1


@pytest.mark.parametrize("seconds", [0.05, LONG])
async def test_when_the_worker_leaves_only_who_is_over_time_has_failed(
    seconds: float, executor: Executor, stuck: Stuck
) -> None:
    go, began = threading.Event(), threading.Event()

    def waits(payload: Any, ctx: JobContext) -> None:
        began.set()
        go.wait(LONG)

    cancellation = Cancellation()
    job = definition(waits, seconds)
    work = asyncio.ensure_future(executor.execute(job, {}, CTX, new_context(), cancellation))
    await asyncio.to_thread(began.wait, 5)
    if seconds < 1:
        await await_until(lambda: stuck.times, description="it is stuck")
    executor.interrupt()
    assert await asyncio.wait_for(work, 5) == (Overran(0.05) if seconds < 1 else BrokenOff())
    assert cancellation.reason == (
        "its timeout of 0.05 s is over" if seconds < 1 else "the worker leaves"
    )
    go.set()


# ------------------------------------------------------------------------- what is said about it


def test_the_message_names_the_timeout() -> None:
    error = timed_out(90, None)
    assert str(error) == "the handler ran longer than its timeout of 90 s"
    cause = ValueError("cannot clean up")
    assert timed_out(90, cause).__cause__ is cause
    assert timed_out(90, asyncio.CancelledError()).__cause__ is None


def test_a_flag_is_told_once_and_from_any_thread() -> None:
    """P31: the first reason counts; whoever listens later hears it too."""
    heard: list[str] = []
    flag = Cancellation()
    flag.on_cancel(heard.append)
    assert not flag
    threads = [threading.Thread(target=flag.cancel, args=(f"reason {n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    wait_until(lambda: bool(flag), description="it is cancelled")
    for thread in threads:
        thread.join()
    flag.on_cancel(heard.append)
    assert heard == [flag.reason] * 2
