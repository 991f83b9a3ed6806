"""What a lane's consumer hands to the runner, and what it is told to do with the job afterwards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from kumiko_django.definitions.options import Lane
from kumiko_django.types.jsonable import JSON


@dataclass(frozen=True, slots=True)
class Delivery:
    """A job as it was fetched.

    Attributes:
        lane: The lane it came from.
        job_name: Its name in the queue; maybe not one of ours.
        job_id: The queue's id.
        data: Whatever the producer stored, payload and metadata in one.
        created_at_ms: When it was queued, in milliseconds since 1970.
        delay_ms: By how much its producer delayed it.
        attempt: 1 for the first; failures raise it, redeliveries do not (B082).
        max_attempts: Runs at most, as stored with the job (P27).
        start: How often the queue has handed it out, this time included.
        losses: How many of these runs were lost, with their worker or their lock.
        backoff: The stored backoff option, in BullMQ's form.
        queue_failure: Set where the queue itself has given the job up (bullmq-python 1.9): the
            handler must not run, but the failure must be on record.
    """

    lane: Lane
    job_name: str
    job_id: str
    data: Any
    created_at_ms: int
    delay_ms: int
    attempt: int
    max_attempts: int
    start: int
    losses: int = 0
    backoff: Any = None
    queue_failure: str | None = None


@dataclass(frozen=True, slots=True)
class Complete:
    """The job is done."""

    result: JSON = None


@dataclass(frozen=True, slots=True)
class Retry:
    """The attempt failed; another follows after a pause."""

    delay_ms: int
    error: str
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class Fail:
    """The job failed for good."""

    error: str
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class GiveBack:
    """The run was broken off by a shutdown: back to the front, no attempt used."""


Settlement: TypeAlias = Complete | Retry | Fail | GiveBack
Handle: TypeAlias = Callable[[Delivery], Awaitable[Settlement]]
