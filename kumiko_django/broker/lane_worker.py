"""The BullMQ worker of a lane, reduced to single steps: fetch, wait, settle, look for stalled jobs.

We use the package's own scripts and argument builders, but not its run loop. That one stops
renewing locks while it waits for running jobs to end (bullmq-python 1.2), dies silently of a
CancelledError (1.3), runs a finished job again when its return value is no JSON (1.12) or Redis was
away for a moment (1.11), strands jobs with an unknown backoff (1.13), wakes up to a second late
(1.14) and lets listeners change a job's state (1.18).
"""

from __future__ import annotations

import json
import logging
import time
from typing import Any

import redis.asyncio
from bullmq import Worker
from bullmq.job import Job
from redis.exceptions import RedisError, ResponseError

from kumiko_django.broker.bullmq import queue_scripts, script_text
from kumiko_django.broker.connection import LONGEST_BLOCK_SECONDS
from kumiko_django.broker.delivery import Complete, Delivery, Fail, GiveBack, Retry, Settlement
from kumiko_django.broker.keys import queue_name
from kumiko_django.broker.rescue import Rescue, is_script_fault
from kumiko_django.conf import get_settings
from kumiko_django.definitions.options import Lane

logger = logging.getLogger("kumiko_django.broker")

MAX_STALLED_COUNT = 100
"""BullMQ fails a job for good at its second lost worker, whatever attempts it has (1.9). Losing a
worker is no fault of the job's, so the bound is only there to end an endless loop."""
IDLE_BLOCK_SECONDS = 5.0
SHORTEST_BLOCK_SECONDS = 0.001
LARGEST_NUMBER = 2**31 - 1
"""What the history's columns hold; a foreign producer may have stored anything."""

_PARENT_OPTIONS = (
    "failParentOnFailure", "continueParentOnFailure", "ignoreDependencyOnFailure",
    "removeDependencyOnFailure",
)  # fmt: skip


class LockLost(Exception):
    """The job is no longer ours: its lock ran out, and another worker has it or had it."""


class LaneWorker:
    """Steps of a BullMQ worker. Bound to the running event loop; used by one consumer."""

    def __init__(self, lane: Lane, client: redis.asyncio.Redis, name: str) -> None:
        settings = get_settings()
        self.lane = lane
        self.queue = queue_name(lane)
        self.lock_ms = round(settings.lock_seconds * 1000)
        self._client = client
        self._scripts = queue_scripts(self.queue)
        self._rescue = Rescue(client, self._scripts.keys)
        self._worker = Worker(
            self.queue,
            None,
            {
                "connection": client,
                "prefix": settings.key_prefix,
                "autorun": False,
                "name": name,
                "lockDuration": self.lock_ms,
                "stalledInterval": self.lock_ms,
                "maxStalledCount": MAX_STALLED_COUNT,
            },
        )
        self._worker.on("error", _log_package_error)
        self._next_due_ms = 0

    async def fetch(self, token: str) -> tuple[Job, Delivery] | None:
        """Take the next job under the lock ``token``; None when nothing is due.

        Never cancelled half-way by us: the job may have been taken when the answer is on its way.
        """
        await self._worker._ensure_client_names()
        while True:
            try:
                data, job_id, _, due = await self._worker.backend.moveToActive(
                    token, self._worker.opts
                )
            except ResponseError as error:
                broken = await self._rescue.taken_under(token) if is_script_fault(error) else None
                if broken is None:
                    raise
                return self._unreadable({}, broken, error)
            if not job_id:
                self._next_due_ms = int(due or 0)
                return None
            self._next_due_ms = 0
            if not self._rescue.is_ghost(data):
                return await self._parse(data, str(job_id), token)
            logger.warning(
                "Job %s of %s is gone from the queue; its id is dropped", job_id, self.queue
            )
            await self._rescue.drop(str(job_id))

    async def wait_for_work(self) -> None:
        """Block until a job may be there: one was added, or one is due, or some seconds passed."""
        # Redis takes fractions of a second; the package rounds up to whole ones (1.14).
        timeout = IDLE_BLOCK_SECONDS
        if self._next_due_ms:
            due_in = self._next_due_ms / 1000 - time.time()
            timeout = min(max(due_in, SHORTEST_BLOCK_SECONDS), LONGEST_BLOCK_SECONDS)
        await self._client.bzpopmin(self._scripts.keys["marker"], timeout)

    async def wake_others(self) -> None:
        """Leave a marker: the one that we took on our way out may have been meant for a peer."""
        await self._client.zadd(self._scripts.keys["marker"], {"0": 0})

    async def settle(self, job: Job, token: str, settlement: Settlement) -> None:
        """Tell the queue what became of a job.

        Raises:
            LockLost: The job is no longer ours; what was to be told is void.
        """
        try:
            await self._settle(job, token, settlement)
        except TypeError as error:  # how the package reports the scripts' negative answers
            raise LockLost(str(error)) from error
        except ResponseError as error:
            if not is_script_fault(error):
                raise
            logger.warning("Job %s is put aside; the queue's script failed: %s", job.id, error)
            await self._rescue.put_aside(str(job.id), _error_of(settlement))

    async def _settle(self, job: Job, token: str, settlement: Settlement) -> None:
        backend = self._worker.backend
        settings = get_settings()
        match settlement:
            case Complete(result):
                keep = _retention(job.opts.get("removeOnComplete"), settings.completed_age)
                await backend.moveToCompleted(job, result, keep, token, fetch_next=False)
            case Fail(error, trace):
                keep = _retention(job.opts.get("removeOnFail"), settings.failed_age)
                fields = _failure_fields(error, trace)
                await backend.moveToFailed(job, fields["failedReason"], keep, token, False, fields)
            case Retry(delay_ms, error, trace) if delay_ms > 0:
                now_ms = round(time.time() * 1000)
                update = {"fieldsToUpdate": _failure_fields(error, trace)}
                await backend.moveToDelayed(job.id, now_ms, delay_ms, token, update)
            case Retry(_, error, trace):
                update = {"fieldsToUpdate": _failure_fields(error, trace)}
                await backend.retryJob(job.id, bool(job.opts.get("lifo")), token, update)
            case GiveBack():
                call = self._scripts.put_back(str(job.id), token)
                script = self._client.register_script(script_text(call.script))
                answer = await script(keys=call.keys, args=call.args)
                if isinstance(answer, int) and answer < 0:
                    raise LockLost(f"job {job.id} could not be given back: code {answer}")
                await self.wake_others()  # the script does so only for jobs without a priority

    async def requeue_stalled(self) -> list[str]:
        """Put jobs whose worker is gone back into the queue; gives their ids."""
        stalled: list[str] = await self._worker.backend.moveStalledJobsToWait(
            MAX_STALLED_COUNT, self.lock_ms
        )
        return stalled

    async def _parse(self, data: dict[str, str], job_id: str, token: str) -> tuple[Job, Delivery]:
        try:
            job = await self._worker.nextJobFromJobData(data, job_id, 0, 0, token)
            return job, self._delivery(job)
        except (RedisError, OSError):
            raise
        except Exception as error:  # noqa: BLE001  (what a foreign producer stores may break anything)
            return self._unreadable(data, job_id, error)

    def _unreadable(
        self, data: dict[str, str], job_id: str, error: Exception
    ) -> tuple[Job, Delivery]:
        """A stand-in for a job that cannot be read, so that it can be recorded and failed.

        It is in ``active`` by now; without a job object it would stall and come back for ever.
        """
        options = {"attempts": 1, "timestamp": _digits(data.get("timestamp"))}
        job = Job(self._worker, str(data.get("name") or "?"), {}, options, job_id)
        job.attemptsStarted = _digits(data.get("ats"))
        reason = f"the queue's record of this job cannot be read: {error}"
        return job, self._delivery(job, reason)

    def _delivery(self, job: Job, failure: str | None = None) -> Delivery:
        if not isinstance(job.name, str) or not job.name:
            raise ValueError("it has no name")
        delivery = Delivery(
            lane=self.lane,
            job_name=job.name,
            job_id=str(job.id),
            data=job.data,
            created_at_ms=job.timestamp,
            delay_ms=_whole(job.opts.get("delay")),
            attempt=min(max(job.attemptsMade, 0) + 1, LARGEST_NUMBER),
            max_attempts=max(_whole(job.opts.get("attempts")), 1),
            start=min(max(job.attemptsStarted, 1), LARGEST_NUMBER),
            losses=max(job.stalledCounter, 0),
            backoff=job.opts.get("backoff"),
            queue_failure=failure or job.deferredFailure,
        )
        # What the package sends along when the job is settled must be of the kinds that its script
        # can handle: an error there would leave the job half settled.
        job.attempts = delivery.max_attempts
        for option in _PARENT_OPTIONS:
            job.opts[option] = bool(job.opts.get(option))
        return delivery


def _error_of(settlement: Settlement) -> str | None:
    match settlement:
        case Complete():
            return None
        case Fail(error=error) | Retry(error=error):
            return error
        case GiveBack():
            return "it could not be given back to the queue"


def _failure_fields(error: str, trace: str) -> dict[str, str]:
    # A lone surrogate has no bytes; the job would stay where it is, and run again.
    reason = error.encode("utf-8", "replace").decode()
    return {"failedReason": reason, "stacktrace": json.dumps([trace] if trace else [])}


def _retention(stored: Any, age: int) -> Any:
    """What the job's producer asked for, where it ends at some time; else our own age (1.20)."""
    if stored is True:
        return True
    if _is_count(stored):
        return int(stored)
    if isinstance(stored, dict):
        kept = {key: stored[key] for key in ("age", "count", "limit") if _is_count(stored.get(key))}
        if "age" in kept or "count" in kept:
            return kept
    return {"age": age}


def _is_count(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 <= value <= LARGEST_NUMBER


def _whole(value: Any) -> int:
    if not isinstance(value, int | float) or value != value:
        return 0
    return int(min(max(value, 0), LARGEST_NUMBER))


def _digits(text: Any) -> int:
    """A number out of a broken record; 0 where there is none."""
    return int(text) if isinstance(text, str) and text.isdecimal() and len(text) < 16 else 0


def _log_package_error(error: object, *_: object) -> None:
    # Without a listener the package drops its errors; a listener must not raise (1.18).
    logger.warning("bullmq: %s", error)
