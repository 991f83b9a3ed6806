"""Between us and the host's meter and tracer: what they raise changes nothing (B210, P24)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from kumiko_django.observability import names
from kumiko_django.observability.meter import Meter
from kumiko_django.observability.tracer import Attribute, Kind, Parent, Span, Tracer
from kumiko_django.types.trace import TraceParent

logger = logging.getLogger("kumiko_django.observability")


class Faults:
    """What a meter or tracer raises: logged the first time, counted from then on."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._guard = threading.Lock()
        self.count = 0

    def note(self, error: Exception) -> None:
        """Note that it has raised."""
        with self._guard:
            self.count += 1
            is_first = self.count == 1
        if is_first:
            logger.warning(
                'KUMIKO["%s"] fails; jobs go on without it, and this is not said again',
                self._what,
                exc_info=error,
            )


class GuardedMeter:
    """The host's meter, as we use it."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.faults = Faults("METER")
        self._guard = threading.Lock()
        self._successes: dict[str, float] = {}

    def count(self, name: str, amount: float = 1, /, **labels: str) -> None:
        """Add to a counter."""
        try:
            self._meter.count(name, amount, **labels)
        except Exception as error:  # noqa: BLE001  (told once)
            self.faults.note(error)

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        """Set a gauge."""
        try:
            self._meter.gauge(name, value, **labels)
        except Exception as error:  # noqa: BLE001  (told once)
            self.faults.note(error)

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        """Add a value to a histogram."""
        try:
            self._meter.observe(name, value, **labels)
        except Exception as error:  # noqa: BLE001  (told once)
            self.faults.note(error)

    def succeeded(self, job: str, timestamp: float) -> None:
        """Say when a job was completed, unless a later time has been said (P84).

        Args:
            job: Its qualified name.
            timestamp: Seconds since 1970; 0 for never.
        """
        with self._guard:
            if timestamp < self._successes.get(job, 0.0):
                return
            self._successes[job] = timestamp
        self.gauge(names.LAST_SUCCESS.name, timestamp, job=job)


class GuardedSpan:
    """A span of the host's tracer, as we use it; a block."""

    def __init__(self, block: AbstractContextManager[Span] | None, faults: Faults) -> None:
        self._block = block
        self._faults = faults
        self._span: Span | None = None

    def __enter__(self) -> GuardedSpan:
        if self._block is not None:
            try:
                self._span = self._block.__enter__()
            except Exception as error:  # noqa: BLE001  (told once)
                self._block = None
                self._faults.note(error)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._block is None:
            return
        try:
            self._block.__exit__(kind, error, traceback)
        except Exception as raised:  # noqa: BLE001  (told once)
            if raised is not error:
                self._faults.note(raised)

    @property
    def context(self) -> TraceParent | None:
        """Where it stands; None where that is not known."""
        if self._span is None:
            return None
        try:
            return _checked(self._span.context)
        except Exception as error:  # noqa: BLE001  (told once)
            self._faults.note(error)
            return None

    def set_attribute(self, name: str, value: Attribute) -> None:
        """Say something about it."""
        if self._span is not None:
            self._call(self._span.set_attribute, name, value)

    def fail(self, message: str, error: BaseException | None = None, traceback: str = "") -> None:
        """Mark it as failed."""
        if self._span is not None:
            self._call(self._span.fail, message, error, traceback)

    def _call(self, function: Any, *arguments: Any) -> None:
        try:
            function(*arguments)
        except Exception as error:  # noqa: BLE001  (told once)
            self._faults.note(error)


class GuardedTracer:
    """The host's tracer, as we use it."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self.faults = Faults("TRACER")

    def span(
        self,
        name: str,
        *,
        kind: Kind = "internal",
        attributes: Mapping[str, Attribute] | None = None,
        parent: Parent = "current",
        links: Sequence[TraceParent] = (),
    ) -> GuardedSpan:
        """A span, as :meth:`Tracer.span` gives it."""
        block: AbstractContextManager[Span] | None = None
        try:
            block = self._tracer.span(
                name, kind=kind, attributes=attributes, parent=parent, links=links
            )
        except Exception as error:  # noqa: BLE001  (told once)
            self.faults.note(error)
        return GuardedSpan(block, self.faults)

    def current(self) -> TraceParent | None:
        """The span in whose block the caller is, if any."""
        try:
            return _checked(self._tracer.current())
        except Exception as error:  # noqa: BLE001  (told once)
            self.faults.note(error)
            return None


def _checked(place: TraceParent | None) -> TraceParent | None:
    """What a tracer gives for a place in a trace, if it is one: it goes into jobs and records."""
    if place is None or isinstance(place, TraceParent):
        return place
    raise TypeError(f"a TraceParent or None is needed, not {type(place).__name__}")
