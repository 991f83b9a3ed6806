"""``ctx.defer(...)``: go on with this run later (B193-B203, P95-P101)."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

from kumiko_django.definitions.options import MAX_PAUSE_SECONDS, as_seconds, is_number
from kumiko_django.exceptions import KumikoError, Unrecoverable

SHORTEST_MS: Final = 1


class Deferral(BaseException):
    """What :meth:`JobContext.defer` gives: return it from the handler, or raise it.

    It steers the flow and is no error, so ``except Exception`` lets it pass.

    Attributes:
        delay_ms: Milliseconds until the run goes on.
    """

    def __init__(self, delay_ms: int) -> None:
        super().__init__(f"deferred for {delay_ms / 1000:g} s")
        self.delay_ms = delay_ms


def deferral(job_name: str, delay: float | dt.timedelta, *, possible: bool) -> Deferral:
    """A deferral, checked.

    Args:
        job_name: The job, for the message.
        delay: A timedelta or seconds, above 0 and at most a year.
        possible: Whether the run stands in a queue where it can wait.

    Raises:
        ValueError: The delay is out of range, or none (B193).
        KumikoError: The run cannot wait (B194).
    """
    seconds: Any = as_seconds(delay)
    if not is_number(seconds) or not 0 < seconds <= MAX_PAUSE_SECONDS:
        raise ValueError(
            f"{job_name}: ctx.defer() takes a timedelta or seconds, above 0 and at most a year, "
            f"not {delay!r}."
        )
    if not possible:
        raise KumikoError(
            f"{job_name} runs outside of its queue (as a boot gate, say) and cannot be deferred. "
            "Wait in the handler, or raise."
        )
    return Deferral(max(round(seconds * 1000), SHORTEST_MS))


def over_budget(before: int, max_defers: int) -> Unrecoverable | None:
    """The error of a run that may not be deferred again; None while it may (B196)."""
    if before < max_defers:
        return None
    return Unrecoverable(f"deferred {before} times already; max_defers={max_defers} allows no more")
