"""What a lane's consumer hands to the runner, and what it is told to do with the job afterwards."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from kumiko_django.broker.rules import Rules
from kumiko_django.definitions.options import Lane, Priority
from kumiko_django.types.cancellation import Cancellation
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
        priority: The stored priority, as a definition would give it.
        queued: False for a boot gate: it runs in the process that starts and is in no queue, so it
            cannot be put back, retried or deferred (B112, B194).
        former: Records of earlier runs of the job that may not be in the history yet, oldest first.
        cancellation: Tells the handler that it should stop: whoever finds that the job's lock or
            slot is lost says so here.
        is_tick: Whether a scheduler has made it.
        has_passed: Whether it has come through the door (design 4).
        not_wanted: Why it is not to be run, whatever the door says; empty if it is.
        rules: What the door has to say about it, where it has.
        fencing_token: Rises with every slot that is claimed; None where it needs none.
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
    priority: Priority = "normal"
    queued: bool = True
    former: tuple[str, ...] = ()
    cancellation: Cancellation = field(default_factory=Cancellation, compare=False, repr=False)
    is_tick: bool = False
    has_passed: bool = False
    not_wanted: str = ""
    rules: Rules | None = None
    fencing_token: int | None = None


@dataclass(frozen=True, slots=True)
class Complete:
    """The job is done."""

    result: JSON = None


@dataclass(frozen=True, slots=True)
class Retry:
    """The attempt failed; another follows after a pause.

    Attributes:
        delay_ms: How long that is.
        error: What went wrong.
        traceback: Where.
        data: The job's data from now on, as JSON; None where it stays.
    """

    delay_ms: int
    error: str
    traceback: str = ""
    data: str | None = None


@dataclass(frozen=True, slots=True)
class Fail:
    """The job failed for good.

    Attributes:
        error: What went wrong.
        traceback: Where.
        forgives_losses: Begin its count of lost workers anew, for whoever retries it by hand.
    """

    error: str
    traceback: str = ""
    forgives_losses: bool = False


@dataclass(frozen=True, slots=True)
class Postpone:
    """The job comes again later, with its data changed; no attempt is used.

    Attributes:
        delay_ms: How much later.
        data: Its data from now on, as JSON.
    """

    delay_ms: int
    data: str


@dataclass(frozen=True, slots=True)
class GiveBack:
    """The run was broken off by a shutdown: back to the front, no attempt used.

    Attributes:
        data: The job's data from now on, as JSON; None where it stays.
    """

    data: str | None = None


Settlement: TypeAlias = Complete | Retry | Fail | Postpone | GiveBack


BARRED: Final = "the queue does not complete it: it has children that are unfinished or failed"


class Fate(enum.Enum):
    """What the queue made of a settlement."""

    AGREED = enum.auto()
    """It stands, and the run's record is stored with it."""
    GONE = enum.auto()
    """The job is no longer there: removed by another client, or the queue was emptied."""
    VOID = enum.auto()
    """The lock was lost: another worker has the job, or had it."""
    BARRED = enum.auto()
    """A parent whose children are unfinished or failed cannot be completed: it has failed."""
    UNTOLD = enum.auto()
    """Redis is away and the process ends; the queue hands the job out again."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run came to.

    Attributes:
        settlement: What the queue shall do with the job.
        record: The run's record, stored in the same step; empty where there is none to store.
        told: Awaited when the queue has answered. Must not raise.
        takes_next: Whether the next job may be fetched in the same step. Not where ``told`` takes
            its time: that job would wait for it.
    """

    settlement: Settlement
    record: str
    told: Callable[[Fate], Awaitable[None]]
    takes_next: bool = True


class Desk(Protocol):
    """Where a consumer brings what it fetches."""

    def rules(self, delivery: Delivery) -> Rules | None:
        """What the door has to say about a delivery. Must not raise."""
        ...

    async def run(self, delivery: Delivery) -> Verdict:
        """Run a delivery. Must not raise."""
        ...

    async def skip(self, delivery: Delivery, reason: str) -> Verdict:
        """End a delivery that the door does not let in. Must not raise."""
        ...

    def has_room(self) -> bool:
        """Whether another run may begin; if not, the consumer waits for :meth:`Consumer.look`."""
        ...
