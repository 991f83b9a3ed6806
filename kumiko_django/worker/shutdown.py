"""Signals of the operating system: the first asks to stop, the second leaves at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Iterator

from kumiko_django.worker.exit_codes import ExitCode

logger = logging.getLogger("kumiko_django.worker")

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def on_stop(request_stop: Callable[[], None]) -> Iterator[None]:
    """Call ``request_stop`` at the first SIGTERM or SIGINT; at the second, end the process.

    Must be entered on the event loop of the main thread. What was installed before is put back.
    """
    loop = asyncio.get_running_loop()
    received: list[int] = []

    def handle(number: int) -> None:
        received.append(number)
        name = signal.Signals(number).name
        if len(received) == 1:
            logger.info("%s: taking no more jobs, waiting for those that run", name)
            request_stop()
            return
        logger.warning("%s again: leaving now; the queue hands unfinished jobs out again", name)
        leave(ExitCode.FORCED)

    previous = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        loop.add_signal_handler(number, handle, number)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, previous[number] or signal.SIG_DFL)


def leave(code: int) -> None:
    """End the process now, without waiting for threads that hang."""
    logging.shutdown()
    os._exit(code)
