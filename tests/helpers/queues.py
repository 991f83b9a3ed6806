"""What lies in a lane's queue, read straight from Redis.

Nothing here uses the code under test or bullmq: the keys are those of the BullMQ format, so that
a test sees what every other BullMQ client would see.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import redis

LISTS = ("wait", "active", "paused")
SORTED_SETS = ("delayed", "prioritized", "completed", "failed", "waiting-children")
STATES = (*LISTS, *SORTED_SETS)
FINISHED = ("completed", "failed")


@dataclass(frozen=True)
class StoredJob:
    """A job as it is stored. What the hash does not have is None, zero or empty."""

    id: str
    name: str
    data: dict[str, Any]
    opts: dict[str, Any]
    attempts_made: int
    attempts_started: int
    stalled: int
    delay: int
    priority: int
    created_at: int
    returned: Any
    failed_reason: str | None
    stacktrace: list[str]
    raw: dict[str, str]
    """Every field of the hash, under its own name and undecoded."""


class QueueState:
    """The queue of one lane.

    ``state.wait``, ``.active``, ``.delayed``, ``.prioritized``, ``.completed``, ``.failed``,
    ``.paused`` are lists of job ids, next one first; ``state.counts()`` counts them;
    ``state.job(id)`` reads a job, ``state.jobs("failed")`` those of a state.
    """

    def __init__(self, client: redis.Redis, queue: str, key_prefix: str = "bull"):
        # Typed loosely: redis-py says "bytes or text" whatever the client decodes.
        self.client: Any = client
        self.queue = queue
        self.base = f"{key_prefix}:{queue}"

    def key(self, name: str) -> str:
        """Give the full name of one of the queue's keys, e.g. ``key("wait")``."""
        return f"{self.base}:{name}"

    def ids(self, state: str) -> list[str]:
        """List the ids in a state, the one that is taken next (or is due or ended first) first."""
        if state in LISTS:
            # Workers take from the right end. Old markers ("0:...") are no jobs.
            entries = list(reversed(self.client.lrange(self.key(state), 0, -1)))
            return [entry for entry in entries if not entry.startswith("0:")]
        if state in SORTED_SETS:
            return list(self.client.zrange(self.key(state), 0, -1))
        raise AssertionError(f"no such state: {state!r}; known are {', '.join(STATES)}")

    @property
    def wait(self) -> list[str]:
        return self.ids("wait")

    @property
    def active(self) -> list[str]:
        return self.ids("active")

    @property
    def delayed(self) -> list[str]:
        return self.ids("delayed")

    @property
    def prioritized(self) -> list[str]:
        return self.ids("prioritized")

    @property
    def completed(self) -> list[str]:
        return self.ids("completed")

    @property
    def failed(self) -> list[str]:
        return self.ids("failed")

    @property
    def paused(self) -> list[str]:
        return self.ids("paused")

    def counts(self) -> dict[str, int]:
        """Count the jobs in every state."""
        return {state: len(self.ids(state)) for state in STATES}

    def pending(self) -> int:
        """Count the jobs that are neither completed nor failed."""
        return sum(count for state, count in self.counts().items() if state not in FINISHED)

    def job(self, job_id: str) -> StoredJob:
        """Read a job; a missing one fails the test with what the queue holds instead."""
        raw = self.client.hgetall(self.key(job_id))
        assert raw, f"no job {job_id!r} in {self.queue}; the queue holds {self.counts()}"
        return _stored(job_id, raw)

    def jobs(self, *states: str) -> list[StoredJob]:
        """Read the jobs of these states (of all states without a name)."""
        return [self.job(job_id) for state in states or STATES for job_id in self.ids(state)]

    def exists(self, job_id: str) -> bool:
        """Say whether the job is stored, in whatever state."""
        return bool(self.client.exists(self.key(job_id)))

    def locked(self, job_id: str) -> bool:
        """Say whether a worker holds the job's lock."""
        return bool(self.client.exists(self.key(f"{job_id}:lock")))

    def due_at(self, job_id: str) -> float:
        """Give the time (seconds since the epoch) at which a delayed job is due."""
        score = self.client.zscore(self.key("delayed"), job_id)
        assert score is not None, f"job {job_id!r} is not delayed; the queue: {self.counts()}"
        # The score is the time in milliseconds, shifted to leave room for an order of arrival.
        return float(int(score) >> 12) / 1000

    def without_retention(self) -> list[str]:
        """List the finished jobs of ours that the queue would keep for ever.

        Ours are those with a format number; what another producer added is its own affair.
        """
        options = ("removeOnComplete", "removeOnFail")
        return [
            job.id
            for job in self.jobs(*FINISHED)
            if "_v" in job.data and not all(_has_age(job.opts.get(name)) for name in options)
        ]


def sweep(client: redis.Redis, prefix: str, *, key_prefix: str = "bull", owned: bool) -> list[str]:
    """Delete what a test with this queue prefix has left, and say what it should not have left.

    Args:
        client: A client that decodes.
        prefix: The test's queue prefix; keys that contain it are the test's.
        key_prefix: What BullMQ puts before its keys.
        owned: The Redis serves only this test run: every key is looked at, and deleted. On a Redis
            of the user only the test's keys are.

    Returns:
        Keys outside the prefix, and finished jobs that would stay for ever.
    """
    keys: Any = client.scan_iter(match="*" if owned else f"*{prefix}*", count=5000)
    found: list[str] = list(keys)
    faults = [
        f"a key outside the queue prefix {prefix}: {key}" for key in found if prefix not in key
    ]
    for key in found:
        if key.startswith(f"{key_prefix}:{prefix}") and key.endswith(":meta"):
            name = key.removeprefix(f"{key_prefix}:").removesuffix(":meta")
            kept = QueueState(client, name, key_prefix).without_retention()
            faults += [f"a finished job without retention: {name}:{job_id}" for job_id in kept]
    if found:
        client.delete(*found)
    return sorted(faults)


def _has_age(retention: object) -> bool:
    return isinstance(retention, dict) and (retention.get("age") or 0) > 0


def _stored(job_id: str, raw: dict[str, str]) -> StoredJob:
    def number(*names: str) -> int:
        return next((int(raw[name]) for name in names if name in raw), 0)

    returned = raw.get("returnvalue")
    return StoredJob(
        id=job_id,
        name=raw.get("name", ""),
        data=json.loads(raw.get("data", "{}")),
        opts=json.loads(raw.get("opts", "{}")),
        attempts_made=number("atm", "attemptsMade"),
        attempts_started=number("ats", "attemptsStarted"),
        stalled=number("stc", "stalledCounter"),
        delay=number("delay"),
        priority=number("priority"),
        created_at=number("timestamp"),
        returned=None if returned is None else json.loads(returned),
        failed_reason=raw.get("failedReason"),
        stacktrace=json.loads(raw.get("stacktrace", "[]")),
        raw=raw,
    )
