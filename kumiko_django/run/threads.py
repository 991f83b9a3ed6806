"""Threads for sync handlers: daemonic, ours, each with clean database connections (P34, P106).

A pool's threads would keep a process from ending while a handler hangs. These are daemonic: when a
worker has given its unfinished jobs back, it can leave.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from django.db import connections, reset_queries

_Task = tuple[Callable[[], Any], contextvars.Context, "Future[Any]"]

logger = logging.getLogger("kumiko_django.run")


class HandlerThreads:
    """Runs functions in threads that are used again. There are never more than run at a time."""

    def __init__(self) -> None:
        self._idle: list[queue.SimpleQueue[_Task | None]] = []
        self._guard = threading.Lock()
        self._made = 0
        self._closed = False

    def run(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """Call ``function`` in a thread, in a copy of the current context.

        Returns:
            A future of the running loop. Cancelling it does not stop the function.
        """
        future: Future[Any] = Future()
        task = (function, contextvars.copy_context(), future)
        with self._guard:
            inbox = self._idle.pop() if self._idle else self._new_thread()
        inbox.put(task)
        return asyncio.wrap_future(future)

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
        while (task := inbox.get()) is not None:
            function, context, future = task
            result, error = None, None
            try:
                clean_connections()
                result = context.run(function)
            except BaseException as raised:  # noqa: BLE001  (SystemExit of a handler is a failure)
                error = raised
            clean_connections()
            self._free(inbox)
            _set(future, result, error)
            del task, function, context, future, result, error
        connections.close_all()

    def _free(self, inbox: queue.SimpleQueue[_Task | None]) -> None:
        with self._guard:
            if self._closed:
                inbox.put(None)
            else:
                self._idle.append(inbox)


def _set(future: Future[Any], result: Any = None, error: BaseException | None = None) -> None:
    if not future.set_running_or_notify_cancel():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


def clean_connections() -> None:
    """Make this thread's database connections fit for the next run. Does not raise.

    Broken and outdated ones are closed, as Django does around a request. One that a handler left
    inside a transaction is thrown away: the transaction is rolled back, and nothing of it reaches
    the next run.
    """
    reset_queries()  # with DEBUG on, Django would remember every statement for ever
    connection: Any  # its stubs do not know of health checks
    for connection in connections.all(initialized_only=True):
        try:
            if connection.in_atomic_block:
                _throw_away(connection)
            else:
                connection.close_if_unusable_or_obsolete()
                # Under CONN_MAX_AGE the server, or a firewall, may have cut it while the thread had
                # nothing to do. Django then asks before a run's first statement; no job should fail
                # because it was the first one after a pause (user-needs 19).
                connection.health_check_enabled = True
        except Exception:
            # A thread that ended here would leave its run waiting for ever.
            logger.exception("The connection %r could not be cleaned", connection.alias)
            _throw_away(connection)


def _throw_away(connection: Any) -> None:
    # close() would only mark it, since a transaction is open; the driver's own close rolls back,
    # and the backend's knows about pools.
    with contextlib.suppress(Exception):
        connection._close()
    with contextlib.suppress(AttributeError):
        del connections[connection.alias]
