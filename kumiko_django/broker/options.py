"""BullMQ job options: the same on every path into a queue (B081), retention included (B091)."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Final

from kumiko_django.conf import get_settings
from kumiko_django.definitions.job import JobDefinition
from kumiko_django.definitions.options import (
    LOW_PRIORITY,
    MAX_PRIORITY,
    Backoff,
    Priority,
    is_number,
)

STACK_TRACES_KEPT: Final = 1
"""BullMQ would keep all, without limit (bullmq-python 1.19); the history has them."""
MAX_DELAY_MS: Final = 10 * 365 * 24 * 3600 * 1000
"""Ten years. The queue orders by time x 4096 in a float, which stays exact up to 2039."""


@dataclass(frozen=True, slots=True)
class JobOptions:
    """How one job is queued.

    Attributes:
        attempts: Runs at most.
        backoff: Pause between them.
        priority: ``high``, ``normal``, ``low`` or BullMQ's integer.
        delay_ms: Milliseconds until it is due.
    """

    attempts: int
    backoff: Backoff
    priority: Priority = "normal"
    delay_ms: int = 0

    @classmethod
    def for_definition(
        cls, definition: JobDefinition, *, priority: Priority | None = None, delay_ms: int = 0
    ) -> JobOptions:
        """The options that a definition asks for, with what a dispatch overrides."""
        return cls(
            attempts=definition.attempts,
            backoff=definition.effective_backoff,
            priority=definition.priority if priority is None else priority,
            delay_ms=delay_ms,
        )

    def to_bullmq(self, job_id: str, timestamp_ms: int) -> dict[str, Any]:
        """The options in BullMQ's words."""
        settings = get_settings()
        options: dict[str, Any] = {
            "jobId": job_id,
            "timestamp": timestamp_ms,
            "attempts": self.attempts,
            # Completed jobs would be kept for ever without this (bullmq-python 1.20). Ages only:
            # a count on one job would sweep the records of others (B092).
            "removeOnComplete": {"age": settings.completed_age},
            "removeOnFail": {"age": settings.failed_age},
            "stackTraceLimit": STACK_TRACES_KEPT,
        }
        if self.attempts > 1:
            options["backoff"] = _backoff_to_bullmq(self.backoff)
        if self.delay_ms > 0:
            options["delay"] = self.delay_ms
        options.update(_priority_to_bullmq(self.priority))
        return options


def _backoff_to_bullmq(backoff: Backoff) -> dict[str, Any]:
    # BullMQ for Node knows jitter; maxDelay is ours, and harmless to it.
    stored: dict[str, Any] = {"type": backoff.kind, "delay": round(backoff.seconds * 1000)}
    if backoff.jitter:
        stored["jitter"] = backoff.jitter
    if backoff.max_seconds is not None:
        stored["maxDelay"] = round(backoff.max_seconds * 1000)
    return stored


def _priority_to_bullmq(priority: Priority) -> dict[str, Any]:
    if priority == "high":
        return {"lifo": True}
    if priority == "low":
        return {"priority": LOW_PRIORITY}
    if isinstance(priority, int) and priority > 0:
        return {"priority": priority}
    return {}


def stored_priority(options: dict[str, Any]) -> Priority:
    """The priority that a job's BullMQ options come to, as a dispatch would give it."""
    if options.get("lifo") is True:
        return "high"
    priority = options.get("priority")
    if not isinstance(priority, int) or isinstance(priority, bool):
        return "normal"
    return priority if 0 < priority <= MAX_PRIORITY else "normal"


def retry_delay_ms(
    stored: object, attempt: int, fallback: Backoff, rng: random.Random | None = None
) -> int:
    """Milliseconds to wait after failed attempt ``attempt``.

    Args:
        stored: The job's own ``backoff`` option: what held when it was queued.
        attempt: The attempt that failed, 1 for the first.
        fallback: Used where nothing is stored or its type is unknown. (The package would strand
            such a job: bullmq-python 1.13.)
        rng: Source of jitter.
    """
    return (_stored_backoff(stored) or fallback).delay_ms(attempt, rng)


def _stored_backoff(stored: Any) -> Backoff | None:
    if not isinstance(stored, dict):  # a bare number is a fixed delay
        stored = {"type": "fixed", "delay": stored}
    delay = _number(stored.get("delay"))
    if stored.get("type") not in ("fixed", "exponential") or delay is None:
        return None
    if not 0 < delay <= MAX_DELAY_MS:
        return None
    jitter, ceiling = _number(stored.get("jitter")), _number(stored.get("maxDelay"))
    return Backoff(
        stored["type"],
        delay / 1000,
        jitter if jitter is not None and 0 <= jitter <= 1 else 0.0,
        None if ceiling is None else max(ceiling, delay) / 1000,
    )


def _number(value: Any) -> float | None:
    """A number that can be reckoned with: JSON of other producers has NaN and 400 digits, too."""
    return value if is_number(value) else None
