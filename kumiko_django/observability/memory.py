"""A meter and a tracer that keep everything in memory, for tests and for a look around."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from kumiko_django.observability.tracer import Attribute, Kind, Parent
from kumiko_django.types.trace import TraceParent

SECONDS_BOUNDS: Final = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5,
    1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0, 600.0, 1_200.0, 3_600.0,
)  # fmt: skip
"""The buckets of durations and waits, in seconds; those of ``JobStat``."""

Labels: TypeAlias = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Histogram:
    """The values of one series.

    Attributes:
        count: How many there are.
        total: Their sum.
        buckets: How many are up to each bound of :data:`SECONDS_BOUNDS` and above the one before;
            a last bucket has those above all.
    """

    count: int = 0
    total: float = 0.0
    buckets: tuple[int, ...] = (0,) * (len(SECONDS_BOUNDS) + 1)

    def plus(self, value: float) -> Histogram:
        """With one value more."""
        place = sum(value > bound for bound in SECONDS_BOUNDS)
        buckets = tuple(n + (i == place) for i, n in enumerate(self.buckets))
        return Histogram(self.count + 1, self.total + value, buckets)


class InMemoryMeter:
    """A meter to look into."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._numbers: dict[str, dict[Labels, float]] = {}
        self._histograms: dict[str, dict[Labels, Histogram]] = {}

    def count(self, name: str, amount: float = 1, /, **labels: str) -> None:
        """Add to a counter."""
        with self._guard:
            series = self._numbers.setdefault(name, {})
            key = frozenset(labels.items())
            series[key] = series.get(key, 0) + amount

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        """Set a gauge."""
        with self._guard:
            self._numbers.setdefault(name, {})[frozenset(labels.items())] = value

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        """Add a value to a histogram."""
        with self._guard:
            series = self._histograms.setdefault(name, {})
            key = frozenset(labels.items())
            series[key] = series.get(key, Histogram()).plus(value)

    def value(self, name: str, /, **labels: str) -> float | None:
        """A counter or gauge with exactly these labels; None where there is no such series."""
        with self._guard:
            return self._numbers.get(name, {}).get(frozenset(labels.items()))

    def histogram(self, name: str, /, **labels: str) -> Histogram | None:
        """A histogram with exactly these labels; None where there is no such series."""
        with self._guard:
            return self._histograms.get(name, {}).get(frozenset(labels.items()))

    def series(self, name: str) -> list[dict[str, str]]:
        """The labels of all series of a metric."""
        with self._guard:
            found = [*self._numbers.get(name, {}), *self._histograms.get(name, {})]
        return [dict(sorted(labels)) for labels in found]

    @property
    def names(self) -> set[str]:
        """The metrics that there are."""
        with self._guard:
            return {*self._numbers, *self._histograms}


@dataclass
class InMemorySpan:
    """A span to look into.

    Attributes:
        name: What was done.
        context: Where it stands.
        kind: As given.
        parent: The span that it is part of.
        links: As given.
        attributes: As given, and set since.
        status: ``error`` once it has failed.
        error: What went wrong.
        exceptions: What was raised.
        ended: Whether its block was left.
    """

    name: str
    context: TraceParent
    kind: Kind = "internal"
    parent: TraceParent | None = None
    links: tuple[TraceParent, ...] = ()
    attributes: dict[str, Attribute] = field(default_factory=dict)
    status: Literal["unset", "error"] = "unset"
    error: str = ""
    exceptions: list[BaseException] = field(default_factory=list)
    ended: bool = False

    def set_attribute(self, name: str, value: Attribute) -> None:
        """Say something about it."""
        self.attributes[name] = value

    def fail(self, message: str, error: BaseException | None = None, traceback: str = "") -> None:
        """Mark it as failed."""
        self.status, self.error = "error", message
        if error is not None:
            self.exceptions.append(error)


_current: ContextVar[InMemorySpan | None] = ContextVar("kumiko_in_memory_span", default=None)


class InMemoryTracer:
    """A tracer to look into.

    Attributes:
        spans: All spans, in the order in which they began.
    """

    def __init__(self, *, sampled: bool = True) -> None:
        """Create it.

        Args:
            sampled: Whether traces that begin here are kept.
        """
        self._sampled = sampled
        self.spans: list[InMemorySpan] = []

    @contextmanager
    def span(
        self,
        name: str,
        *,
        kind: Kind = "internal",
        attributes: Mapping[str, Attribute] | None = None,
        parent: Parent = "current",
        links: Sequence[TraceParent] = (),
    ) -> Iterator[InMemorySpan]:
        """A span; see :meth:`kumiko_django.observability.tracer.Tracer.span`."""
        above = self.current() if isinstance(parent, str) else parent
        span = InMemorySpan(
            name, self._below(above), kind, above, tuple(links), dict(attributes or {})
        )
        self.spans.append(span)
        token = _current.set(span)
        try:
            yield span
        except BaseException as error:
            span.fail(f"{type(error).__name__}: {error}", error)
            raise
        finally:
            span.ended = True
            with suppress(ValueError):  # left in another context than it was entered in
                _current.reset(token)

    def current(self) -> TraceParent | None:
        """The span in whose block the caller is, if any."""
        span = _current.get()
        return None if span is None else span.context

    def named(self, name: str) -> list[InMemorySpan]:
        """The spans of a name, in the order in which they began."""
        return [span for span in self.spans if span.name == name]

    def _below(self, above: TraceParent | None) -> TraceParent:
        span_id = os.urandom(8).hex()
        if above is None:
            return TraceParent(os.urandom(16).hex(), span_id, self._sampled)
        return TraceParent(above.trace_id, span_id, above.sampled)
