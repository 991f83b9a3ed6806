"""What an execution came to: a closed set."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import TypeAlias

from kumiko_django.types.jsonable import JSON


@dataclass(frozen=True, slots=True)
class Completed:
    """The handler returned.

    Attributes:
        result: What it returned, if that is JSON and small; else None.
        note: Why the result was not kept, or empty.
    """

    result: JSON = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt failed.

    Attributes:
        error: Scrubbed message.
        traceback: Scrubbed traceback; empty where no handler ran.
        fingerprint: Equal for errors of the same kind at the same place of the same job.
        final: Whether no attempt follows.
        retry_ms: Milliseconds until the next attempt, unless final.
        exception: What was raised, for receivers of ``job_failed`` in this process; not recorded.
    """

    error: str
    traceback: str = ""
    fingerprint: str = ""
    final: bool = True
    retry_ms: int = 0
    exception: BaseException | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A shutdown broke the run off; the job goes back to the queue, no attempt used."""

    reason: str = "the worker was stopped"


@dataclass(frozen=True, slots=True)
class Skipped:
    """There was no reason to call the handler; the job is done.

    Attributes:
        reason: Why.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Deferred:
    """The handler has put the run off; it goes on later, no attempt used.

    Attributes:
        delay_ms: Milliseconds until then.
        resume_at: When that is.
        count: How often the job has been deferred, this time included.
    """

    delay_ms: int
    resume_at: dt.datetime
    count: int


@dataclass(frozen=True, slots=True)
class Quarantined:
    """The job has lost as many workers as its budget allows; its handler was not called again.

    Attributes:
        error: What became of it.
    """

    error: str


Outcome: TypeAlias = Completed | Failed | Interrupted | Skipped | Deferred | Quarantined


def is_final(outcome: Outcome) -> bool:
    """Whether no other attempt follows."""
    match outcome:
        case Completed() | Skipped() | Quarantined():
            return True
        case Failed(final=final):
            return final
        case Interrupted() | Deferred():
            return False


def error_of(outcome: Outcome | None) -> str | None:
    """The scrubbed text of what went wrong, if something did."""
    return outcome.error if isinstance(outcome, Failed | Quarantined) else None
