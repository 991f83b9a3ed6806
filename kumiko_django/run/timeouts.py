"""The end of a handler's time (P23, design 4).

A thread cannot be killed. An exception is sent into it, which Python raises between two steps of
Python code; what waits in C (a socket, ``time.sleep``) notices when it comes back.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any, Final

_NOTHING: Final = object()


class TimedOut(BaseException):
    """A handler ran longer than its job's ``timeout``. Raised in sync handlers.

    ``except Exception`` lets it pass. A handler that catches it may clean up; the attempt has
    failed whatever it returns.
    """


class Stoppable:
    """A call in another thread that can be sent :class:`TimedOut` while it runs, and only then."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._guard = threading.Lock()
        self._thread_id: int | None = None
        self._stopped = False

    def stop(self) -> None:
        """Send it. From any thread; at most one is sent."""
        with self._guard:
            if not self._stopped and self._thread_id is not None:
                _send(self._thread_id, TimedOut)
            self._stopped = True

    def __call__(self) -> Any:
        """Call the function. When this returns or raises, nothing is on its way any more.

        Raises:
            TimedOut: It was sent, and the function let it pass.
        """
        result: Any = _NOTHING
        try:
            self._begin()
            try:
                result = self._function()
            finally:
                self._end()
        except TimedOut:
            # It may have struck in the middle of _end(). It is sent once, so now it cannot.
            self._end()
            if result is _NOTHING:
                raise
        return result

    def _begin(self) -> None:
        with self._guard:
            if self._stopped:
                raise TimedOut
            self._thread_id = threading.get_ident()

    def _end(self) -> None:
        with self._guard:
            if self._thread_id is not None:
                # What was sent and has not struck must not strike whoever gets the thread next.
                _send(self._thread_id, None)
            self._thread_id = None


def _send(thread_id: int, error: type[BaseException] | None) -> None:
    pending = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), pending)


def timed_out(seconds: float, raised: BaseException | None) -> TimedOut:
    """The error of an attempt whose handler ran too long.

    Args:
        seconds: Its timeout.
        raised: What it raised when it was told; None if nothing.
    """
    error = TimedOut(f"the handler ran longer than its timeout of {seconds:g} s")
    if raised is None:
        return error
    if not isinstance(raised, Exception):  # what was sent; where it struck is where it was slow
        return error.with_traceback(raised.__traceback__)
    error.__cause__ = raised
    return error
