"""The BullMQ worker of a lane, reduced to single steps: fetch, wait, settle, look for stalled jobs.

We use the package's own scripts and argument builders, but not its run loop. That one stops
renewing locks while it waits for running jobs to end (bullmq-python 1.2), dies silently of a
CancelledError (1.3), runs a finished job again when its return value is no JSON (1.12) or Redis was
away for a moment (1.11), strands jobs with an unknown backoff (1.13), wakes up to a second late
(1.14) and lets listeners change a job's state (1.18).
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any, TypeAlias

import redis.asyncio
from bullmq import Worker
from bullmq.job import Job
from redis.exceptions import RedisError, ResponseError

from kumiko_django.broker import door, records, settling
from kumiko_django.broker.bullmq import fetched_of, queue_scripts, script_of
from kumiko_django.broker.channel import Channel
from kumiko_django.broker.connection import LONGEST_BLOCK_SECONDS
from kumiko_django.broker.delivery import BARRED, Delivery, Fail, Fate, GiveBack, Settlement
from kumiko_django.broker.door import Claim
from kumiko_django.broker.foreign import digits_of, log_package_error, whole_of
from kumiko_django.broker.keys import queue_name
from kumiko_django.broker.options import stored_priority
from kumiko_django.broker.rescue import Rescue, is_script_fault
from kumiko_django.broker.rules import Rules
from kumiko_django.broker.settling import LARGEST_NUMBER
from kumiko_django.broker.ticks import MISSED, Ticks, tell_missed
from kumiko_django.conf import get_settings
from kumiko_django.definitions.options import Lane

logger = logging.getLogger("kumiko_django.broker")

IDLE_BLOCK_SECONDS = 5.0
SHORTEST_BLOCK_SECONDS = 0.001

_PARENT_OPTIONS = (
    "failParentOnFailure", "continueParentOnFailure", "ignoreDependencyOnFailure",
    "removeDependencyOnFailure",
)  # fmt: skip

_FATES = {-1: Fate.GONE, -4: Fate.BARRED, -9: Fate.BARRED}
"""What the package's scripts mean: no such job, children pending, children failed. Whatever else
they refuse is no longer ours: another worker has the job, or had it."""

Taken: TypeAlias = tuple[Job, Delivery]


class Refused(Exception):
    """The queue does not take a settlement."""

    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.fate = _FATES.get(code, Fate.VOID)


class LaneWorker:
    """Steps of a BullMQ worker. Bound to the running event loop; used by one consumer."""

    def __init__(self, lane: Lane, client: redis.asyncio.Redis, name: str) -> None:
        settings = get_settings()
        self.lane = lane
        self.queue = queue_name(lane)
        self.lock_ms = round(settings.lock_seconds * 1000)
        # BullMQ fails a job for good at its second lost worker, whatever attempts it has (1.9).
        # Losing workers has a budget of its own.
        self._most_losses = settings.stall_budget - 1
        self.channel = Channel(client)
        self._client = client
        self._scripts = queue_scripts(self.queue)
        self._rescue = Rescue(client, self._scripts.keys)
        self._ticks = Ticks(self.channel, lane, self.lock_ms)
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
                "maxStalledCount": self._most_losses,
            },
        )
        self._worker.on("error", log_package_error)
        self._next_due_ms = 0

    async def fetch(self, token: str) -> Taken | None:
        """Take the next job under the lock ``token``; None when nothing is due.

        Never cancelled half-way by us: the job may have been taken when the answer is on its way.
        """
        await self._worker._ensure_client_names()
        while True:
            try:
                answer = await self._worker.backend.moveToActive(token, self._worker.opts)
            except ResponseError as error:
                broken = await self._rescue.taken_under(token) if is_script_fault(error) else None
                if broken is None:
                    raise
                return self._unreadable({}, broken, error)
            data, job_id, limit, due = answer
            if not job_id:
                # A limit is another client's; for so many milliseconds there is nothing to take.
                due = round(time.time() * 1000) + int(limit) if limit else due
                self._next_due_ms = int(due or 0)
                return None
            self._next_due_ms = 0
            taken = await self._taken(data or {}, str(job_id), token)
            if taken is not None:
                return taken

    async def _taken(self, data: dict[str, str], job_id: str, token: str) -> Taken | None:
        """A fetched job as we hand it on; None if it had been deleted meanwhile."""
        if door.is_void(data):
            await self._rescue.drop(job_id)
            return None
        if not self._rescue.is_ghost(data):
            fields, (data, missed) = data, await self._ticks.advance(data, job_id)
            job, delivery = await self._parse(data, job_id, token)
            delivery = door.seen(delivery, fields)
            if missed:
                tell_missed(delivery.job_name, job_id)
                delivery = replace(delivery, not_wanted=MISSED)
            if delivery.start > 1:
                former = await records.of_former_runs(self.channel, delivery)
                delivery = replace(delivery, former=former)
            return job, delivery
        logger.warning("Job %s of %s is gone from the queue; its id is dropped", job_id, self.queue)
        await self._rescue.drop(job_id)
        return None

    async def wait_for_work(self) -> None:
        """Block until a job may be there: one was added, or one is due, or some seconds passed."""
        await self._rescue.gather_paused()
        # Redis takes fractions of a second; the package rounds up to whole ones (1.14).
        timeout = IDLE_BLOCK_SECONDS
        if self._next_due_ms:
            due_in = self._next_due_ms / 1000 - time.time()
            timeout = min(max(due_in, SHORTEST_BLOCK_SECONDS), LONGEST_BLOCK_SECONDS)
        await self._client.bzpopmin(self._scripts.keys["marker"], timeout)

    async def wake_others(self) -> None:
        """Leave a marker: the one that we took on our way out may have been meant for a peer."""
        await self._client.zadd(self._scripts.keys["marker"], {"0": 0})

    async def settle(
        self, job: Job, delivery: Delivery, token: str, settlement: Settlement, record: str,
        *, fetch: bool,
    ) -> Taken | None:  # fmt: skip
        """Tell the queue what became of a job and store its run's record, in one step.

        Args:
            job: The job, as it was fetched.
            delivery: The same, as it was handed on.
            token: The lock that it was fetched under.
            settlement: What became of it.
            record: The record of its run.
            fetch: Take the next job under the same token.

        Returns:
            The next job; None if nothing is due, or it could not be taken in the same step.

        Raises:
            Refused: The job is no longer ours, or cannot be completed and has been failed.
            OtherKind: It is done, but for the record, which cannot be kept there.
        """
        field = records.record_field(delivery)
        try:
            answer = await self._tell(job, delivery, token, settlement, record, fetch=fetch)
        except ResponseError as error:
            if not is_script_fault(error):
                raise
            logger.warning("Job %s is put aside; the queue's script failed: %s", job.id, error)
            await self._put_aside(delivery, token, settlement, record)
            return None
        if isinstance(answer, int) and answer < 0:
            if not await records.is_stored(self.channel, self.lane, field, record):
                raise await self._refused(job, delivery, token, answer)
            # It had been done; only its answer was lost. So is what may have been fetched.
            await self._put_back_taken(token)
            return None
        if isinstance(settlement, GiveBack):
            await self.wake_others()  # the script does so only for jobs without a priority
        return await self._next(answer, token) if fetch and isinstance(answer, list) else None

    async def _refused(self, job: Job, delivery: Delivery, token: str, code: int) -> Refused:
        refused = Refused(code)
        if refused.fate is Fate.BARRED:
            # Its lock is still ours. Left alone it would be handed out again, for ever.
            await self._tell(job, delivery, token, Fail(BARRED), "", fetch=False)
        return refused

    async def _put_aside(
        self, delivery: Delivery, token: str, settlement: Settlement, record: str
    ) -> None:
        await self._rescue.put_aside(delivery.job_id, settling.error_of(settlement))
        if delivery.rules is not None:
            call = door.releasing(delivery, token, settlement)
            await self.channel.run(call.code, call.keys, call.args)
        await records.store(self.channel, self.lane, records.record_field(delivery), record)

    async def _tell(
        self, job: Job, delivery: Delivery, token: str, settlement: Settlement, record: str,
        *, fetch: bool,
    ) -> Any:  # fmt: skip
        field = records.record_field(delivery)
        if delivery.rules is None:
            call = settling.call(self._scripts, job, token, settlement, fetch=fetch)
            return await records.settle(self.channel, self.lane, call, field, record)
        # The next job is fetched last: it may be the one that is given this one's slot.
        call = settling.call(self._scripts, job, token, settlement, fetch=False)
        kept = (records.records_key(self.lane), field, record) if record else None
        following = door.fetching(self._scripts, token, self.lock_ms) if fetch else None
        call = door.leaving(call, delivery, token, settlement, record=kept, fetch=following)
        return await self.channel.run(call.code, call.keys, call.args)

    async def claim(self, delivery: Delivery, token: str, rules: Rules) -> Claim:
        """Claim for a fetched job what it needs to run, or park it; may be asked again."""
        call = door.claiming(self._scripts, delivery, token, rules)
        return door.claim_of(await self.channel.run(call.code, call.keys, call.args))

    async def _next(self, answer: list[Any], token: str) -> Taken | None:
        """What was fetched with a settlement. Whatever goes wrong now is not the settlement's."""
        data, job_id, _ = fetched_of(answer)
        try:
            return None if job_id is None else await self._taken(data, job_id, token)
        except records.OtherKind:
            raise
        except Exception:
            logger.warning("Job %s was fetched and could not be looked at; it is handed out again "
                           "when its lock has run out", job_id, exc_info=True)  # fmt: skip
            return None

    async def _put_back_taken(self, token: str) -> None:
        taken = await self._rescue.taken_under(token)
        if taken is not None:
            call = self._scripts.put_back(taken, token)
            await self.channel.run(script_of(call.script), call.keys, call.args)
            await self.wake_others()

    async def requeue_stalled(self) -> list[str]:
        """Put jobs whose worker is gone back into the queue; gives their ids."""
        stalled: list[str] = await self._worker.backend.moveStalledJobsToWait(
            self._most_losses, self.lock_ms
        )
        return stalled

    async def _parse(self, data: dict[str, str], job_id: str, token: str) -> Taken:
        try:
            job = await self._worker.nextJobFromJobData(data, job_id, 0, 0, token)
            return job, self._delivery(job)
        except (RedisError, OSError):
            raise
        except Exception as error:  # noqa: BLE001  (what a foreign producer stores may break anything)
            return self._unreadable(data, job_id, error)

    def _unreadable(self, data: dict[str, str], job_id: str, error: Exception) -> Taken:
        """A stand-in for a job that cannot be read, so that it can be recorded and failed.

        It is in ``active`` by now; without a job object it would stall and come back for ever.
        """
        options = {"attempts": 1, "timestamp": digits_of(data.get("timestamp"))}
        job = Job(self._worker, str(data.get("name") or "?"), {}, options, job_id)
        job.attemptsStarted = digits_of(data.get("ats"))
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
            delay_ms=whole_of(job.opts.get("delay")),
            attempt=min(max(job.attemptsMade, 0) + 1, LARGEST_NUMBER),
            max_attempts=max(whole_of(job.opts.get("attempts")), 1),
            start=min(max(job.attemptsStarted, 1), LARGEST_NUMBER),
            losses=max(job.stalledCounter, 0),
            backoff=job.opts.get("backoff"),
            queue_failure=failure or job.deferredFailure,
            priority=stored_priority(job.opts),
        )
        # What the package sends along when the job is settled must be of the kinds that its script
        # can handle: an error there would leave the job half settled.
        job.attempts, job.attemptsMade = delivery.max_attempts, delivery.attempt - 1
        for option in _PARENT_OPTIONS:
            job.opts[option] = bool(job.opts.get(option))
        return delivery
