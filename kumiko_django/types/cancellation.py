"""The word to a running handler that it should stop: its lock or slot is lost, its time is up."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Cancellation:
    """Whether a run should stop, and why. It stops nothing by itself. Safe from any thread."""

    __slots__ = ("_guard", "_listeners", "_reason")

    def __init__(self) -> None:
        self._reason = ""
        self._guard = threading.Lock()
        self._listeners: list[Callable[[str], None]] = []

    def __bool__(self) -> bool:
        return bool(self._reason)

    @property
    def reason(self) -> str:
        """Why, or empty."""
        return self._reason

    def cancel(self, reason: str) -> None:
        """Say so; the first reason counts.

        Args:
            reason: A sentence without a full stop.
        """
        with self._guard:
            if self._reason:
                return
            self._reason = reason
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener(reason)

    def on_cancel(self, listener: Callable[[str], None]) -> None:
        """Have ``listener`` called with the reason, in whatever thread says it, at most once."""
        with self._guard:
            if not self._reason:
                self._listeners.append(listener)
                return
        listener(self._reason)
