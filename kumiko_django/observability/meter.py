"""The meter: where numbers go. Small, so that anything can be one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Meter(Protocol):
    """What ``METER`` has to be.

    Called from any thread and from the event loop, often: it must not block. What it raises is
    logged once and changes nothing else. :data:`kumiko_django.observability.names.METRICS` has all
    names of ours with their labels; handlers add their own.
    """

    def count(self, name: str, amount: float = 1, /, **labels: str) -> None:
        """Add to a counter."""
        ...

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        """Set a gauge."""
        ...

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        """Add a value to a histogram; ours are in seconds."""
        ...


class NoMeter:
    """A meter that forgets everything."""

    def count(self, name: str, amount: float = 1, /, **labels: str) -> None:
        """Nothing."""

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        """Nothing."""

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        """Nothing."""


class Metrics:
    """A meter with labels that are given already: ``ctx.metrics_for()`` (B162)."""

    def __init__(self, meter: Meter | None, labels: Mapping[str, str]) -> None:
        self._meter: Meter = NoMeter() if meter is None else meter
        self._labels = dict(labels)

    def count(self, name: str, amount: float = 1, /, **labels: str) -> None:
        """Add to a counter."""
        self._meter.count(name, amount, **{**labels, **self._labels})

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        """Set a gauge."""
        self._meter.gauge(name, value, **{**labels, **self._labels})

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        """Add a value to a histogram."""
        self._meter.observe(name, value, **{**labels, **self._labels})
