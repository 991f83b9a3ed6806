"""The arithmetic of the table: rates, medians, spreads, ratios."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Moment:
    """What a worker had come to at one time.

    Attributes:
        at: Seconds on a monotonic clock.
        done: Jobs finished.
        cpu: Seconds of CPU that the worker has used, user and system.
    """

    at: float
    done: int
    cpu: float


@dataclass(frozen=True)
class Spread:
    """Several rounds of one figure."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Summarise the rounds; there is at least one."""
        return cls(statistics.median(values), min(values), max(values))


def rate(begin: Moment, end: Moment) -> float:
    """Jobs a second between two moments."""
    return (end.done - begin.done) / (end.at - begin.at)


def cpu_per_thousand(begin: Moment, end: Moment) -> float:
    """CPU seconds for 1,000 jobs between two moments."""
    return (end.cpu - begin.cpu) / (end.done - begin.done) * 1000


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """One ratio a round: what was measured side by side is compared with each other.

    Raises:
        ValueError: One side has more rounds.
    """
    return [one / other for one, other in zip(ours, theirs, strict=True)]


def quantile(values: Sequence[float], share: float) -> float:
    """The value that ``share`` (0 to 1) of the values do not exceed (nearest rank)."""
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * share // 1))
    return ordered[int(rank) - 1]


@dataclass(frozen=True)
class Bound:
    """What must hold (issue "History that costs almost nothing")."""

    limit: float
    is_floor: bool = True

    def holds(self, value: float) -> bool:
        """Whether a median keeps the bound."""
        return value >= self.limit if self.is_floor else value < self.limit
