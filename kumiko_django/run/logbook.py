"""``ctx.log``: lines of one run, kept in its history while it lives (B176-B179, P81)."""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from kumiko_django.history.events import Level, LogLine
from kumiko_django.types.jsonable import JSON, to_jsonable_lossy
from kumiko_django.types.scrub import cut_end

MAX_LINES = 1_000
MAX_MESSAGE_CHARS = 4_000
MAX_DATA_CHARS = 8_000


class Logbook:
    """All lines of one run, numbered in order, from whatever thread they come."""

    def __init__(self, hand_over: Callable[[LogLine], None], before: int = 0) -> None:
        """Create it.

        Args:
            hand_over: Given each line.
            before: How many lines the run has from before it was deferred.
        """
        self._hand_over = hand_over
        self._before = before
        self._lines: list[LogLine] = []
        self._guard = threading.Lock()
        self._closed = False

    @property
    def lines(self) -> tuple[LogLine, ...]:
        """The lines so far."""
        return tuple(self._lines)

    @property
    def count(self) -> int:
        """How many lines the run has in all."""
        return self._before + len(self._lines)

    def write(self, level: Level, message: object, data: Mapping[str, Any]) -> None:
        """Add a line. Never raises; beyond :data:`MAX_LINES` one notice stands for the rest."""
        with self._guard:
            if self._closed or len(self._lines) > MAX_LINES:
                return
            if len(self._lines) == MAX_LINES:
                level, data = "warn", {}
                message = f"The log ends here: it has {MAX_LINES} lines."
            self._append(level, message, data)

    def close(self, error: str | None = None) -> None:
        """End the log; the error that ended the run is its last line, whatever the limit (B179)."""
        with self._guard:
            if not self._closed and error is not None:
                self._append("error", error, {})
            self._closed = True

    def _append(self, level: Level, message: object, data: Mapping[str, Any]) -> None:
        line = LogLine(
            number=self.count + 1,
            level=level,
            message=cut_end(_text(message), MAX_MESSAGE_CHARS),
            data=readable(data),
            created_at=dt.datetime.now(dt.UTC),
        )
        self._lines.append(line)
        self._hand_over(line)


class RunLog:
    """What a handler logs with; ``child`` adds context to every line (B178).

    As in ``logging``, further positional arguments fill the ``%s`` of the message.
    """

    def __init__(self, book: Logbook, context: Mapping[str, Any] | None = None) -> None:
        self._book = book
        self._context = dict(context or {})

    def info(self, message: object, /, *args: object, **data: Any) -> None:
        """Log something worth knowing."""
        self._write("info", message, args, data)

    def warn(self, message: object, /, *args: object, **data: Any) -> None:
        """Log something that is not as it should be."""
        self._write("warn", message, args, data)

    warning = warn

    def error(self, message: object, /, *args: object, **data: Any) -> None:
        """Log something that went wrong; the run goes on."""
        self._write("error", message, args, data)

    def debug(self, message: object, /, *args: object, **data: Any) -> None:
        """Nothing: debug lines are not kept (B176)."""

    def child(self, /, **context: Any) -> RunLog:
        """A log whose lines also carry ``context``; data of a line wins over it."""
        return RunLog(self._book, {**self._context, **context})

    def _write(
        self, level: Level, message: object, args: tuple[object, ...], data: Mapping[str, Any]
    ) -> None:
        text = _filled(message, args) if args else message
        self._book.write(level, text, {**self._context, **data})


def _filled(message: object, args: tuple[Any, ...]) -> str:
    """The message with its arguments, as in ``logging``; if they do not fit, both as they are."""
    text = _text(message)
    try:
        # As there: one mapping fills %(names)s.
        return text % (args[0] if len(args) == 1 and isinstance(args[0], Mapping) else args)
    except Exception:  # noqa: BLE001  (logging must never fail the handler: P81)
        return " ".join((text, *map(_text, args)))


def _text(message: object) -> str:
    try:
        value = to_jsonable_lossy(message)
        return value if isinstance(value, str) else str(value)
    except Exception:  # noqa: BLE001  (logging must never fail the handler: P81)
        return _unreadable(message)


def readable(data: Mapping[str, Any]) -> dict[str, JSON]:
    """The data as JSON; what cannot be read is named by its type, the rest stays."""
    plain: dict[str, JSON] = {}
    for key, value in data.items():
        try:
            plain[key] = to_jsonable_lossy(value)
            json.dumps(plain[key])
        except Exception:  # noqa: BLE001  (as above: hostile objects, endless numbers)
            plain[key] = _unreadable(value)
    text = str(plain)
    return plain if len(text) <= MAX_DATA_CHARS else {"data": cut_end(text, MAX_DATA_CHARS)}


def _unreadable(value: object) -> str:
    return f"<unreadable {type(value).__name__}>"
