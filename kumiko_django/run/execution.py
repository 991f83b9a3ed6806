"""Calling the handler: sync ones in threads, async ones on the loop, until they end.

Two things end the wait. The worker leaves: then what runs is given back to the queue. The job's
timeout is over: then the handler is told, and waited for all the same, since a retry must not begin
while it still works (design 4).
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import Context
from dataclasses import dataclass
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext

from kumiko_django.definitions.job import JobDefinition
from kumiko_django.exceptions import Unrecoverable
from kumiko_django.run.context import JobContext
from kumiko_django.run.threads import BorrowedThread, HandlerThreads
from kumiko_django.run.timeouts import Stoppable
from kumiko_django.types.cancellation import Cancellation

CANCEL_SECONDS = 2.0
"""How long a cancelled async handler may take to clean up at shutdown."""
DEFAULT_GRACE_SECONDS = 25.0
WORKER_LEAVES = "the worker leaves"


@dataclass(frozen=True, slots=True)
class Returned:
    """The handler returned."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """The handler raised. Any exception: one that left the loop's task would end the loop."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class BrokenOff:
    """The worker leaves; the handler was cancelled, still runs in its thread, or never began."""


@dataclass(frozen=True, slots=True)
class Overran:
    """The handler ran longer than its timeout and was told to stop; what it returned is void.

    Attributes:
        seconds: Its timeout.
        error: What it raised then, if anything.
    """

    seconds: float
    error: BaseException | None = None


Ending = Returned | Raised | BrokenOff | Overran


class Executor:
    """Runs handlers until they end or the worker has to leave."""

    def __init__(
        self,
        threads: HandlerThreads,
        grace_seconds: float = DEFAULT_GRACE_SECONDS,
        on_stuck: Callable[[], None] = lambda: None,
    ) -> None:
        """Create an executor on the running event loop.

        Args:
            threads: For sync handlers.
            grace_seconds: How long a handler may take to end once its timeout is over.
            on_stuck: Called when one takes longer: nothing but the end of the process ends it.
        """
        self._threads = threads
        self._grace_seconds = grace_seconds
        self._on_stuck = on_stuck
        self._interrupted = False
        self._waiting: set[asyncio.Future[None]] = set()

    def interrupt(self) -> None:
        """Break off everything that runs, now and from now on."""
        self._interrupted = True
        for waiter in list(self._waiting):
            _wake(waiter)

    async def execute(
        self,
        definition: JobDefinition,
        payload: Any,
        ctx: JobContext,
        surroundings: Context,
        cancellation: Cancellation | None = None,
    ) -> Ending:
        """Call the handler of ``definition`` in a context of its own.

        Args:
            definition: The job.
            payload: The handler's first argument.
            ctx: Its second.
            surroundings: The context in which it is called.
            cancellation: Told when it should stop.
        """
        if self._interrupted:
            return BrokenOff()
        call = _Call(
            definition.handler, payload, ctx, surroundings,
            definition.timeout_seconds,
            Cancellation() if cancellation is None else cancellation,
        )  # fmt: skip
        return await (self._on_loop(call) if definition.is_async else self._in_thread(call))

    async def _in_thread(self, call: _Call) -> Ending:
        stoppable = Stoppable(call.in_thread)
        work = self._threads.run(stoppable, call.surroundings)
        if await self._ends(work, call.timeout):
            ending: Ending = work.result()
            return ending
        if self._is_over(call):
            stoppable.stop()
            await self._outlast(work)
            return _overran(call, work)
        # The thread cannot be stopped; it ends with the process.
        return BrokenOff()

    async def _on_loop(self, call: _Call) -> Ending:
        thread = _RunThread(self._threads)
        work = asyncio.create_task(_guarded(call, thread), context=call.surroundings)
        if await self._ends(work, call.timeout):
            return _ending_of(work)
        work.cancel()
        if self._is_over(call):
            await self._outlast(work)
            # What it has begun in its thread (the ORM, say) goes on without it.
            await self._outlast(asyncio.wrap_future(thread.released))
            return _overran(call, work)
        await asyncio.wait([work], timeout=CANCEL_SECONDS)
        if work.done() and isinstance(ending := _ending_of(work), Returned):
            # It finished what it was doing instead. Done is done.
            return ending
        return BrokenOff()

    def _is_over(self, call: _Call) -> bool:
        """Whether its time is over; else the worker leaves. The handler is told either way."""
        if self._interrupted or call.timeout is None:
            call.cancellation.cancel(WORKER_LEAVES)
            return False
        call.cancellation.cancel(f"its timeout of {call.timeout:g} s is over")
        return True

    async def _outlast(self, work: asyncio.Future[Any]) -> None:
        """Wait for what has been told to end. If it does not within the grace, the process must."""
        if await self._ends(work, self._grace_seconds) or self._interrupted:
            return
        self._on_stuck()
        await self._ends(work)

    async def _ends(self, work: asyncio.Future[Any], seconds: float | None = None) -> bool:
        """Wait for ``work``, the interruption or the time; True if the work ended."""
        if self._interrupted or work.done():
            return work.done()
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting.add(waiter)
        work.add_done_callback(lambda _: _wake(waiter))
        timer = None if seconds is None else loop.call_later(seconds, _wake, waiter)
        try:
            await waiter
        finally:
            self._waiting.discard(waiter)
            if timer is not None:
                timer.cancel()
        return work.done()


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of a handler."""

    handler: Callable[..., Any]
    payload: Any
    ctx: JobContext
    surroundings: Context
    timeout: float | None
    cancellation: Cancellation

    def in_thread(self) -> Ending:
        """Call a sync handler."""
        try:
            self.ctx._facets.activate_time_zone()
            return _checked(self.handler(self.payload, self.ctx))
        except BaseException as error:  # noqa: BLE001  (SystemExit is a failure, no more)
            return Raised(error)

    def on_loop(self) -> Coroutine[Any, Any, Any]:
        """Call an async one."""
        coroutine: Coroutine[Any, Any, Any] = self.handler(self.payload, self.ctx)
        return coroutine


async def _guarded(call: _Call, thread: _RunThread) -> Ending:
    async with thread:
        try:
            await call.ctx._facets.aactivate_time_zone()
            return _checked(await call.on_loop(), "await it")
        except BaseException as error:  # noqa: BLE001  (bullmq-python 1.3: CancelledError, too)
            return Raised(error)


def _overran(call: _Call, work: asyncio.Future[Any]) -> Overran:
    """What it came to, whatever it has returned: it was told to stop while it ran."""
    error: BaseException | None = None
    if work.done() and not work.cancelled():
        error = work.exception()
        if error is None and isinstance(ending := work.result(), Raised):
            error = ending.error
    return Overran(call.timeout or 0.0, error)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _checked(value: Any, fix: str = "write it as async def") -> Returned:
    """What a handler returned, unless it is work that nobody would do.

    A plain function around an async one gives a coroutine, and so does an async one that forgets an
    ``await``; recorded as completed, the job would silently never run.
    """
    if inspect.iscoroutine(value):
        value.close()
        raise Unrecoverable(f"the handler returned a coroutine, which nothing awaits; {fix}")
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        raise Unrecoverable(
            "the handler returned a generator, which nothing iterates; do its work, and return"
        )
    return Returned(value)


class _RunThread(ThreadSensitiveContext):
    """One thread for all ``sync_to_async`` calls of an async run, the async ORM's included.

    Without it all async runs of the process would queue for a single thread. It is borrowed from
    those of sync handlers, with its connections, and never waited for on the loop.
    """

    def __init__(self, threads: HandlerThreads) -> None:
        super().__init__()
        self._thread = BorrowedThread(threads)
        self.released: Future[Any] = Future()
        """Done when its work has ended, too; a run may let go of some that goes on."""
        self.released.set_result(None)

    async def __aenter__(self) -> _RunThread:
        self.token = SyncToAsync.thread_sensitive_context.set(self)
        SyncToAsync.context_to_thread_executor[self] = self._thread
        return self

    async def __aexit__(self, *details: object) -> None:
        # It stays there for tasks that outlive the run; asgiref would make threads of its own for
        # them, with connections that nobody closes. With the last of them it goes.
        if self.token is not None:
            SyncToAsync.thread_sensitive_context.reset(self.token)
        self.released = self._thread.give_back()


def _ending_of(work: asyncio.Future[Ending]) -> Ending:
    if work.cancelled():
        # The handler cancelled its own task and returned before that took effect. Passed on, the
        # cancellation would end our run of it, and nobody would tell the queue (1.3).
        return Raised(asyncio.CancelledError("the handler cancelled its own task"))
    return work.result()
