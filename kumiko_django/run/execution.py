"""Calling the handler: sync ones in threads, async ones on the loop, either until interrupted."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from contextvars import Context
from dataclasses import dataclass
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext

from kumiko_django.definitions.job import JobDefinition
from kumiko_django.exceptions import Unrecoverable
from kumiko_django.run.context import JobContext
from kumiko_django.run.threads import BorrowedThread, HandlerThreads

CANCEL_SECONDS = 2.0
"""How long a cancelled async handler may take to clean up at shutdown."""


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


Ending = Returned | Raised | BrokenOff


class Executor:
    """Runs handlers until they end or the worker has to leave."""

    def __init__(self, threads: HandlerThreads) -> None:
        self._threads = threads
        self._interrupted = False
        self._waiting: set[asyncio.Future[None]] = set()

    def interrupt(self) -> None:
        """Break off everything that runs, now and from now on."""
        self._interrupted = True
        for waiter in list(self._waiting):
            _wake(waiter)

    async def execute(
        self, definition: JobDefinition, payload: Any, ctx: JobContext, surroundings: Context
    ) -> Ending:
        """Call the handler of ``definition`` in a context of its own."""
        if self._interrupted:
            return BrokenOff()
        if definition.is_async:
            return await self._on_loop(definition.handler, payload, ctx, surroundings)
        return await self._in_thread(definition.handler, payload, ctx, surroundings)

    async def _in_thread(
        self, handler: Callable[..., Any], payload: Any, ctx: JobContext, surroundings: Context
    ) -> Ending:
        def call() -> Ending:
            try:
                return _checked(handler(payload, ctx))
            except BaseException as error:  # noqa: BLE001  (SystemExit is a failure, no more)
                return Raised(error)

        work = self._threads.run(call, surroundings)
        if await self._ends(work):
            ending: Ending = work.result()
            return ending
        # The thread cannot be stopped; it ends with the process.
        return BrokenOff()

    async def _on_loop(
        self,
        handler: Callable[..., Coroutine[Any, Any, Any]],
        payload: Any,
        ctx: JobContext,
        surroundings: Context,
    ) -> Ending:
        work = asyncio.create_task(self._guarded(handler, payload, ctx), context=surroundings)
        if await self._ends(work):
            return _ending_of(work)
        work.cancel()
        await asyncio.wait([work], timeout=CANCEL_SECONDS)
        if work.done() and isinstance(ending := _ending_of(work), Returned):
            # It finished what it was doing instead. Done is done.
            return ending
        return BrokenOff()

    async def _guarded(
        self, handler: Callable[..., Coroutine[Any, Any, Any]], payload: Any, ctx: JobContext
    ) -> Ending:
        async with _RunThread(self._threads):
            try:
                return Returned(await handler(payload, ctx))
            except BaseException as error:  # noqa: BLE001  (bullmq-python 1.3: CancelledError, too)
                return Raised(error)

    async def _ends(self, work: asyncio.Future[Any]) -> bool:
        """Wait for ``work`` or the interruption; True if the work ended."""
        if self._interrupted:
            return work.done()
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        work.add_done_callback(lambda _: _wake(waiter))
        try:
            await waiter
        finally:
            self._waiting.discard(waiter)
        return work.done()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _checked(value: Any) -> Returned:
    """What a sync handler returned, unless it is work that nobody would do.

    A plain function around an async one gives a coroutine; recorded as completed, the job would
    silently never run.
    """
    if not inspect.iscoroutine(value):
        return Returned(value)
    value.close()
    raise Unrecoverable(
        "the handler returned a coroutine, which nothing awaits; write it as async def"
    )


class _RunThread(ThreadSensitiveContext):
    """One thread for all ``sync_to_async`` calls of an async run, the async ORM's included.

    Without it all async runs of the process would queue for a single thread. It is borrowed from
    those of sync handlers, with its connections, and never waited for on the loop.
    """

    def __init__(self, threads: HandlerThreads) -> None:
        super().__init__()
        self._thread = BorrowedThread(threads)

    async def __aenter__(self) -> _RunThread:
        self.token = SyncToAsync.thread_sensitive_context.set(self)
        SyncToAsync.context_to_thread_executor[self] = self._thread
        return self

    async def __aexit__(self, *details: object) -> None:
        # It stays there for tasks that outlive the run; asgiref would make threads of its own for
        # them, with connections that nobody closes. With the last of them it goes.
        if self.token is not None:
            SyncToAsync.thread_sensitive_context.reset(self.token)
        self._thread.give_back()


def _ending_of(work: asyncio.Future[Ending]) -> Ending:
    if work.cancelled():
        # The handler cancelled its own task and returned before that took effect. Passed on, the
        # cancellation would end our run of it, and nobody would tell the queue (1.3).
        return Raised(asyncio.CancelledError("the handler cancelled its own task"))
    return work.result()
