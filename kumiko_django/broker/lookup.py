"""Where a job is in its queue, asked from sync code."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from kumiko_django.broker.bullmq import queue_scripts
from kumiko_django.broker.connection import sync_client
from kumiko_django.broker.keys import queue_name
from kumiko_django.definitions.options import LANES, Lane

_FIELDS: Final = (
    "name", "timestamp", "atm", "ats", "stc", "priority", "processedOn", "finishedOn",
    "failedReason", "opts",
)  # fmt: skip
_SETS: Final = ("completed", "failed", "delayed", "prioritized", "waiting-children")
_LISTS: Final = ("active", "wait", "paused")

# In one step: a job that moves meanwhile would be seen nowhere, or twice.
_LOOK: Final = """
local found = redis.call("HMGET", KEYS[1], unpack(ARGV, 2))
if not found[1] then
  return false
end
for i = 2, 6 do
  local score = redis.call("ZSCORE", KEYS[i], ARGV[1])
  if score then
    return {found, i - 1, score}
  end
end
for i = 7, 9 do
  if redis.call("LPOS", KEYS[i], ARGV[1]) then
    return {found, i - 1, "0"}
  end
end
return {found, 0, "0"}
"""


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job as its queue has it.

    Attributes:
        lane: Its lane.
        job_id: Its id.
        name: Its name in the queue.
        state: ``waiting``, ``active``, ``delayed``, ``prioritized``, ``waiting-children``,
            ``paused``, ``completed``, ``failed``, or ``unknown`` for one that is in no list.
        created_at: When it was queued.
        due_at: When a delayed one is due.
        finished_at: When it ended.
        attempts_made: Attempts that have ended.
        max_attempts: How many there are at most.
        starts: How often it was handed out.
        losses: How often it lost its worker.
        error: Why it failed last, or empty.
    """

    lane: Lane
    job_id: str
    name: str
    state: str
    created_at: dt.datetime | None
    due_at: dt.datetime | None
    finished_at: dt.datetime | None
    attempts_made: int
    max_attempts: int
    starts: int
    losses: int
    error: str

    @property
    def has_ended(self) -> bool:
        """Whether the queue does no more for it."""
        return self.state in ("completed", "failed")


def find_job(job_id: str, lanes: Sequence[Lane] = LANES) -> QueuedJob | None:
    """A job by its id; None if no queue of these lanes has it.

    Raises:
        BrokerUnavailable: Redis does not answer.
    """
    for lane in lanes:
        keys = queue_scripts(queue_name(lane)).keys
        names = [f"{keys['']}{job_id}", *(keys[state] for state in (*_SETS, *_LISTS))]
        with sync_client() as client:
            if client.type(names[0]) != "hash":
                continue  # no such job, or the name of one of the queue's own keys
            answer: Any = client.eval(_LOOK, len(names), *names, job_id, *_FIELDS)
        if answer:
            return _job(lane, job_id, *answer)
    return None


def _job(lane: Lane, job_id: str, values: list[Any], number: int, score: str) -> QueuedJob:
    fields = dict(zip(_FIELDS, values, strict=True))
    state = ("unknown", *_SETS, "active", "waiting", "paused")[number]
    return QueuedJob(
        lane=lane,
        job_id=job_id,
        name=str(fields["name"]),
        state=state,
        created_at=_moment(fields["timestamp"]),
        # The score is the time in milliseconds, shifted by twelve bits that keep the order.
        due_at=_moment(int(float(score)) >> 12) if state == "delayed" else None,
        finished_at=_moment(fields["finishedOn"]),
        attempts_made=_number(fields["atm"]),
        max_attempts=_attempts(fields["opts"]),
        starts=_number(fields["ats"]),
        losses=_number(fields["stc"]),
        error=str(fields["failedReason"] or ""),
    )


def _attempts(options: Any) -> int:
    try:
        return max(int(json.loads(options or "{}").get("attempts") or 1), 1)
    except (ValueError, TypeError, AttributeError):  # another producer's
        return 1


def _number(text: Any) -> int:
    return int(text) if isinstance(text, str) and text.isdecimal() and len(text) < 16 else 0


def _moment(milliseconds: Any) -> dt.datetime | None:
    try:
        return dt.datetime.fromtimestamp(int(milliseconds) / 1000, dt.UTC)
    except (ValueError, TypeError, OverflowError, OSError):
        return None
