"""Calls from threads to an event loop, many for one waking of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable


class Mailbox:
    """Calls functions on an event loop, in the order in which they were posted.

    ``call_soon_threadsafe`` writes to a socket at every call, which costs more than most of what
    is handed over.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[Callable[[], None]] = deque()
        self._woken = False

    def post(self, call: Callable[[], None]) -> None:
        """Have ``call`` called on the loop; from any thread. It must not raise."""
        self._calls.append(call)
        if not self._woken:
            self._woken = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        # Before emptying it: what is posted from now on wakes the loop again.
        self._woken = False
        try:
            while self._calls:
                self._calls.popleft()()
        finally:
            # A fault of ours, which the loop tells of. What was posted after it does not wait for
            # the next one: there may be none.
            if self._calls:
                self._loop.call_soon(self._deliver)
