"""The BullMQ worker of one lane as single steps: fetch, wait, settle, look for stalled jobs.

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

from kumiko_django.broker.bullmq import queue_scripts, script_text
from kumiko_django.broker.connection import LONGEST_BLOCK_SECONDS
from kumiko_django.broker.delivery import Complete, Delivery, Fail, GiveBack, Retry, Settlement
from kumiko_django.broker.keys import queue_name
from kumiko_django.conf import get_settings
from kumiko_django.definitions.options import Lane

logger = logging.getLogger("kumiko_django.broker")

MAX_STALLED_COUNT = 100
"""BullMQ fails a job for good at its second lost worker, whatever attempts it has (1.9). Losing a
worker is no fault of the job's, so the bound is only there to end an endless loop."""
IDLE_BLOCK_SECONDS = 5.0
SHORTEST_BLOCK_SECONDS = 0.001


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
            data, job_id, _, due = await self._worker.backend.moveToActive(token, self._worker.opts)
            if data:
                self._next_due_ms = 0
                return await self._parse(data, str(job_id), token)
            if not job_id:
                self._next_due_ms = int(due or 0)
                return None
            await self._drop_ghost(str(job_id))

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

    async def _settle(self, job: Job, token: str, settlement: Settlement) -> None:
        backend = self._worker.backend
        settings = get_settings()
        match settlement:
            case Complete(result):
                keep = job.opts.get("removeOnComplete") or {"age": settings.completed_age}
                await backend.moveToCompleted(job, result, keep, token, fetch_next=False)
            case Fail(error, trace):
                keep = job.opts.get("removeOnFail") or {"age": settings.failed_age}
                fields = _failure_fields(error, trace)
                await backend.moveToFailed(job, error, keep, token, False, fields)
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
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            # Another client stored something unreadable. It is in `active` by now; without a job
            # object it would stall and come back for ever.
            job = Job(self._worker, str(data.get("name") or "?"), {}, {"attempts": 1}, job_id)
            reason = f"the queue's record of this job cannot be read: {error}"
            return job, self._delivery(job, reason)

    def _delivery(self, job: Job, failure: str | None = None) -> Delivery:
        if not isinstance(job.name, str) or not job.name:
            raise ValueError("it has no name")
        return Delivery(
            lane=self.lane,
            job_name=job.name,
            job_id=str(job.id),
            data=job.data,
            created_at_ms=job.timestamp,
            delay_ms=_whole(job.opts.get("delay")),
            attempt=job.attemptsMade + 1,
            max_attempts=max(_whole(job.opts.get("attempts")), 1),
            start=max(job.attemptsStarted, 1),
            backoff=job.opts.get("backoff"),
            queue_failure=failure or job.deferredFailure,
        )

    async def _drop_ghost(self, job_id: str) -> None:
        """An id in the list whose job was deleted: nothing to run, nothing to keep."""
        logger.warning("Job %s of %s is gone from the queue; its id is dropped", job_id, self.queue)
        await self._client.lrem(self._scripts.keys["active"], 1, job_id)
        await self._client.delete(f"{self._scripts.keys['']}{job_id}:lock")


def _failure_fields(error: str, trace: str) -> dict[str, str]:
    return {"failedReason": error, "stacktrace": json.dumps([trace] if trace else [])}


def _whole(value: Any) -> int:
    return int(value) if isinstance(value, int | float) else 0


def _log_package_error(error: object, *_: object) -> None:
    # Without a listener the package drops its errors; a listener must not raise (1.18).
    logger.warning("bullmq: %s", error)
