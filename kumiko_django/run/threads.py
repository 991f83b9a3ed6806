"""Threads for sync work of handlers: daemonic, ours, with clean database connections (P34, P106).

A pool's threads would keep a process from ending while a handler hangs. These are daemonic: when a
worker has given its unfinished jobs back, it can leave.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db import connections

from kumiko_django.run.connections import clean_connections, prepare_connections
from kumiko_django.run.mailbox import Mailbox


@dataclass(slots=True)
class _Task:
    """What a thread is to do.

    Attributes:
        function: To be called.
        tell: Given its result, or what it raised.
        ends: Whether nothing of a run is left afterwards; connections are cleaned then.
        frees: Whether the thread is free afterwards, for whoever comes next.
    """

    function: Callable[[], Any]
    tell: Callable[[Any, BaseException | None], None]
    ends: bool = True
    frees: bool = True


class HandlerThreads:
    """Runs functions in threads that are used again. There are never more than run at a time."""

    def __init__(self) -> None:
        self._idle: list[queue.SimpleQueue[_Task | None]] = []
        self._guard = threading.Lock()
        self._made = 0
        self._closed = False
        self._mailbox: Mailbox | None = None

    def run(
        self, function: Callable[[], Any], context: contextvars.Context | None = None
    ) -> asyncio.Future[Any]:
        """Call ``function`` in a thread.

        Args:
            function: To be called.
            context: In which it is called; without it, in a copy of the current one.

        Returns:
            A future of the running loop. Cancelling it does not stop the function.
        """
        loop = asyncio.get_running_loop()
        if self._mailbox is None:
            self._mailbox = Mailbox(loop)
        future: asyncio.Future[Any] = loop.create_future()
        call = partial((context or contextvars.copy_context()).run, function)
        self.take().put(_Task(call, partial(_post, self._mailbox, future)))
        return future

    def take(self) -> queue.SimpleQueue[_Task | None]:
        """The inbox of an idle or new thread; it is free again after a task that says so."""
        with self._guard:
            return self._idle.pop() if self._idle else self._new_thread()

    def close(self) -> None:
        """End the threads that are idle; the others end with their function, or the process."""
        with self._guard:
            self._closed = True
            for inbox in self._idle:
                inbox.put(None)
            self._idle.clear()

    def _new_thread(self) -> queue.SimpleQueue[_Task | None]:
        inbox: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._made += 1
        threading.Thread(
            target=self._work, args=(inbox,), name=f"kumiko-handler-{self._made}", daemon=True
        ).start()
        return inbox

    def _work(self, inbox: queue.SimpleQueue[_Task | None]) -> None:
        begins, idle_since = True, time.monotonic()
        while (task := inbox.get()) is not None:
            result, error = None, None
            try:
                if begins:
                    prepare_connections(time.monotonic() - idle_since)
                result = task.function()
            except BaseException as raised:  # noqa: BLE001  (SystemExit of a handler is a failure)
                error = raised
            begins = task.ends
            if begins:
                clean_connections()
                idle_since = time.monotonic()
            if task.frees:
                self.free(inbox)
            task.tell(result, error)
            del task, result, error
        connections.close_all()

    def free(self, inbox: queue.SimpleQueue[_Task | None]) -> None:
        """Let others have the thread of an inbox."""
        with self._guard:
            if self._closed:
                inbox.put(None)
            else:
                self._idle.append(inbox)


class BorrowedThread(Executor):
    """One of the threads for all sync work of an async run, one thing after the other.

    It is taken when there is something to do: most async runs have nothing. What a task that
    outlives its run still asks for gets threads call by call.
    """

    def __init__(self, threads: HandlerThreads) -> None:
        self._pool = threads
        self._inbox: queue.SimpleQueue[_Task | None] | None = None
        self._asked: list[Future[Any]] = []
        self._is_over = False

    @property
    def _threads(self) -> bool:
        """Whether it has a thread; named as a pool names its own, for who asks both."""
        return self._inbox is not None

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a function in the thread."""
        inbox = self._inbox
        if inbox is None:
            inbox = self._pool.take()
            self._inbox = None if self._is_over else inbox
        future: Future[Any] = Future()
        call = partial(_unless_cancelled, future, partial(function, *args, **kwargs))
        inbox.put(_Task(call, partial(_set, future), ends=self._is_over, frees=self._is_over))
        self._asked = [asked for asked in self._asked if not asked.done()]
        self._asked.append(future)
        return future

    def give_back(self) -> Future[Any]:
        """Let others have the thread when it has done what it was given. Never blocks.

        Returns:
            A future that is done then.
        """
        inbox, self._inbox, self._is_over = self._inbox, None, True
        done: Future[Any] = Future()
        if inbox is None:
            done.set_result(None)
            return done
        # At once where nothing is left to do but to clean up: a run that follows would get another
        # thread, with another connection. A call that was given up may take for ever.
        is_busy = not all(asked.done() for asked in self._asked)
        inbox.put(_Task(lambda: None, partial(_set, done), frees=is_busy))
        if not is_busy:
            self._pool.free(inbox)
        return done


class _Cancelled(Exception):
    """Who asked for it has given up before it began."""


def _unless_cancelled(future: Future[Any], function: Callable[[], Any]) -> Any:
    if not future.set_running_or_notify_cancel():
        raise _Cancelled
    return function()


def _set(future: Future[Any], result: Any, error: BaseException | None) -> None:
    if isinstance(error, _Cancelled):
        return
    if error is not None:
        future.set_exception(_acceptable(error))
    else:
        future.set_result(result)


def _acceptable(error: BaseException) -> BaseException:
    """The error as a future takes it; one that refused it would be waited for for ever.

    Of a StopIteration it makes what Python makes of one that leaves a coroutine.
    """
    if not isinstance(error, StopIteration):
        return error
    made = RuntimeError("a function raised StopIteration")
    made.__cause__ = error
    return made


def _post(
    mailbox: Mailbox, future: asyncio.Future[Any], result: Any, error: BaseException | None
) -> None:
    mailbox.post(partial(_arrive, future, result, error))


def _arrive(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(_acceptable(error))
    else:
        future.set_result(result)
