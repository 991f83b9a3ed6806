"""Signals of the operating system: the first asks to stop, the second leaves at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

from kumiko_django.worker.exit_codes import ExitCode

logger = logging.getLogger("kumiko_django.worker")

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def on_stop(request_stop: Callable[[], None]) -> Iterator[None]:
    """Call ``request_stop`` at the first SIGTERM or SIGINT; at the second, end the process.

    Must be entered on an event loop; outside the main thread, which alone gets signals, nothing is
    installed. What was installed before is put back.

    The signals are handled in a thread: an async handler that blocks the event loop, or a call that
    does not return, must not keep the second signal from ending the process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    threading.Thread(
        target=_watch, args=(reader, loop, request_stop), name="kumiko-signals", daemon=True
    ).start()
    previous_fd = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    previous = {number: signal.signal(number, _ignore) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler or signal.SIG_DFL)
        signal.set_wakeup_fd(previous_fd)
        writer.close()


def _ignore(number: int, frame: FrameType | None) -> None:
    """Stand in for a handler: with one installed, the number reaches the thread."""


def _watch(
    reader: socket.socket, loop: asyncio.AbstractEventLoop, request_stop: Callable[[], None]
) -> None:
    count = 0
    with reader:
        while received := reader.recv(1):
            if received[0] not in SIGNALS:
                continue  # the host project may have handlers of its own for others
            count += 1
            name = signal.Signals(received[0]).name
            if count == 1:
                logger.info("%s: taking no more jobs, waiting for those that run", name)
                with contextlib.suppress(RuntimeError):  # the loop has just ended by itself
                    loop.call_soon_threadsafe(request_stop)
            else:
                # Logging may hang on a pipe that nobody reads.
                threading.Thread(target=_end_hard, args=(ExitCode.FORCED,), daemon=True).start()
                logger.warning("%s again: leaving; the queue hands unfinished jobs out again", name)
                leave(ExitCode.FORCED)


def _end_hard(code: int) -> None:
    time.sleep(1.0)
    os._exit(code)


def leave(code: int) -> None:
    """End the process now, without waiting for threads that hang."""
    logging.shutdown()
    os._exit(code)


def leave_after(seconds: float, code: int) -> None:
    """End the process if it has not ended by itself in time.

    Python waits for the threads of pools before it ends: a handler that let go of one (a time-out
    around ``asyncio.to_thread``, say) would keep a stopped worker alive for as long as it runs.
    """

    def wait() -> None:
        time.sleep(seconds)
        logger.warning("A thread that a handler has started does not end; leaving without it")
        leave(code)

    threading.Thread(target=wait, name="kumiko-exit", daemon=True).start()
