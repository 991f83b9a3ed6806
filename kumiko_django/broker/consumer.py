"""The consumer of one lane: fetch while there are free slots, run, settle; stop in two steps.

A slot that has got a job keeps itself busy: settling a job fetches the next one in the same step
(bullmq-python 5). Only an idle slot fetches for itself. ``run`` ends when it was told to stop
*fetching*. Jobs that run then go on, with their locks renewed (1.2), until they end or are
interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from redis.exceptions import RedisError

from kumiko_django.broker import records
from kumiko_django.broker.bullmq import queue_scripts
from kumiko_django.broker.connection import current_address, new_async_client
from kumiko_django.broker.delivery import BARRED, Delivery, Desk, Fate, Verdict
from kumiko_django.broker.entrance import Entrance
from kumiko_django.broker.foreign import lenient
from kumiko_django.broker.lane_worker import LaneWorker, Refused, Taken
from kumiko_django.broker.locks import LockKeeper
from kumiko_django.broker.stalled import cancel_surely, watch_stalled
from kumiko_django.definitions.options import Lane
from kumiko_django.types.scrub import scrub

logger = logging.getLogger("kumiko_django.broker")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
_WAKE_SECONDS, _LOOK_SECONDS = 1.0, 1.0
LOCK_LOST = "its lock is lost; another worker may run it now"
MOST_FAULTS = 10
"""A consumer that only meets faults, one after the other, is better started anew."""
_MEANING = {
    Fate.GONE: "it has been removed",
    Fate.VOID: "another worker has it, or had it; its outcome here is void",
    Fate.BARRED: BARRED,
}


class Consumer:
    """Consumes one lane's queue on the running event loop."""

    def __init__(self, lane: Lane, desk: Desk, *, concurrency: int, name: str) -> None:
        """Create a consumer on the running event loop; nothing connects before :meth:`run`.

        Args:
            lane: The lane.
            desk: Runs what is fetched.
            concurrency: Jobs at a time.
            name: The worker's name, shown by Redis.
        """
        self.lane = lane
        self._desk = desk
        self._concurrency = concurrency
        self._address = current_address()
        self._client = new_async_client(lenient(self._address), patient=True)
        self._worker = LaneWorker(lane, self._client, name)
        self._keeper = LockKeeper(
            self._address, queue_scripts(self._worker.queue), self._worker.lock_ms, self._lock_lost
        )
        self._slots: set[asyncio.Task[None]] = set()
        self._running: dict[tuple[str, str], Delivery] = {}
        self._changed = asyncio.Event()
        self._stopping = False
        self._leaving = asyncio.Event()
        self._entrance = Entrance(self._worker, desk, self._keeper, self._leaving, self._lock_lost)
        self._idle: asyncio.Future[None] | None = None
        self._token_base = uuid4().hex
        self._fetches = 0
        self._faults = 0
        self._unusable: records.OtherKind | None = None
        self._away = False
        self._pause = _FIRST_PAUSE

    @property
    def running(self) -> int:
        """How many jobs run now."""
        return len(self._slots)

    def look(self) -> None:
        """Look again whether there is room for another run."""
        self._changed.set()

    def forget(self, fields: Sequence[str]) -> None:
        """Drop records that are in the history. If that fails, whoever finds them drops them."""
        records.drop(self._worker.channel, self.lane, fields)

    def stop_fetching(self) -> None:
        """Take nothing new. Safe to call again."""
        self._stopping = True
        self._changed.set()
        if self._idle is not None:
            cancel_surely(self._idle)

    def leave(self) -> None:
        """Stop trying to settle jobs with a Redis that is away: the process ends now."""
        self._leaving.set()

    async def run(self) -> None:
        """Consume until told to stop fetching.

        Raises:
            OtherKind: The records of runs cannot be kept.
        """
        self._keeper.open()
        stalled = asyncio.create_task(
            watch_stalled(self._worker), name=f"kumiko-stalled-{self.lane}"
        )
        try:
            with contextlib.suppress(RedisError, OSError):
                await records.refuse_other_kind(self._worker.channel, self.lane)
            while await self._slot_is_free():
                taken = await self._take()
                if taken is not None:
                    self._begin(taken)
            if self._unusable is not None:
                raise self._unusable
        finally:
            cancel_surely(stalled)
            await asyncio.wait([stalled])
            if not self._away:
                with contextlib.suppress(RedisError, OSError):
                    async with asyncio.timeout(_WAKE_SECONDS):
                        await self._worker.wake_others()

    async def drain(self, seconds: float) -> int:
        """Wait for running jobs.

        Args:
            seconds: How long at most.

        Returns:
            How many still run.
        """
        if self._slots:
            await asyncio.wait(self._slots, timeout=seconds)
        return len(self._slots)

    async def close(self) -> None:
        """Release threads and connections."""
        await asyncio.to_thread(self._keeper.close)
        await self._worker.channel.close()
        await self._client.aclose()

    async def _slot_is_free(self) -> bool:
        while not self._stopping and not self._may_fetch(len(self._slots) + 1):
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                # Nobody says so when room comes because records were given up.
                await asyncio.wait_for(self._changed.wait(), _LOOK_SECONDS)
        return not self._stopping

    def _may_fetch(self, slots: int) -> bool:
        return not self._stopping and slots <= self._concurrency and self._desk.has_room()

    async def _take(self) -> tuple[Taken, str] | None:
        self._fetches += 1
        token = f"{self._token_base}:{self._fetches}"
        try:
            fetched = await self._worker.fetch(token)
            self._tell_back()
            if fetched is not None:
                return fetched, token
            await self._wait_idle()
        except (RedisError, OSError) as error:
            await self._wait_away(error)
        except records.OtherKind:
            raise
        except Exception:
            # Ours to mend. Whatever was taken is handed out again when its lock has run out; the
            # jobs behind it must not wait for that. If it goes on like this, the process ends.
            self._faults += 1
            logger.exception("Lane %s met a fault while it fetched", self.lane)
            if self._faults >= MOST_FAULTS:
                raise
            await self._wait_longer()
        return None

    async def _wait_idle(self) -> None:
        if self._stopping:
            return
        self._idle = asyncio.ensure_future(self._worker.wait_for_work())
        try:
            await self._idle
        except asyncio.CancelledError:
            if not self._stopping:
                raise
        finally:
            self._idle = None

    async def _wait_away(self, error: Exception) -> None:
        """Redis is away, or refuses: wait longer and longer; say so once, unless stopping (P93)."""
        if not self._away:
            logger.log(
                logging.DEBUG if self._stopping else logging.WARNING,
                "Lane %s cannot fetch jobs (%s); it goes on by itself when Redis is back",
                self.lane,
                scrub(str(error), self._address.secrets).rstrip("."),
            )
        self._away = True
        await self._wait_longer()

    async def _wait_longer(self) -> None:
        await self._sleep(self._pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    def _tell_back(self) -> None:
        if self._away:
            logger.info("Lane %s fetches jobs again", self.lane)
        self._away, self._pause, self._faults = False, _FIRST_PAUSE, 0

    async def _sleep(self, seconds: float) -> None:
        self._changed.clear()
        if self._stopping:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)

    def _begin(self, first: tuple[Taken, str]) -> None:
        slot = asyncio.create_task(self._keep_busy(*first), name=f"kumiko-slot-{self.lane}")
        self._slots.add(slot)
        slot.add_done_callback(self._ended)

    def _ended(self, slot: asyncio.Task[None]) -> None:
        self._slots.discard(slot)
        self._changed.set()

    async def _keep_busy(self, taken: Taken | None, token: str) -> None:
        """Run one job after the other until there is none to take, or no need to."""
        while taken is not None:
            job, delivery = taken
            taken = None
            self._keeper.hold(token, delivery.job_id)
            self._running[delivery.job_id, token] = delivery
            try:
                admitted = await self._entrance.run(delivery, token)
                if admitted is None:
                    return
                delivery, verdict = admitted
                taken = await self._settle(job, delivery, token, verdict)
            except Exception:
                # Ours to mend, never the loop's end (bullmq-python 1.3). The job's lock runs out,
                # and the queue hands it out again.
                logger.exception(
                    "Job %s (%s) could not be settled", delivery.job_id, delivery.job_name
                )
            finally:
                self._keeper.release(token, delivery.job_id)
                self._running.pop((delivery.job_id, token), None)

    async def _settle(
        self, job: Any, delivery: Delivery, token: str, verdict: Verdict
    ) -> Taken | None:
        """Tell the queue, for as long as it takes, and the desk what came of it.

        A job that is done must not run again because Redis was away for a moment (bullmq-python
        1.11).
        """
        pause, taken = _FIRST_PAUSE, None
        while True:
            # A renewal that comes after the settlement would take the lock for lost.
            self._keeper.release(token, delivery.job_id)
            try:
                fetch = verdict.takes_next and self._may_fetch(len(self._slots))
                taken = await self._worker.settle(
                    job, delivery, token, verdict.settlement, verdict.record, fetch=fetch
                )
                fate = Fate.AGREED
            except Refused as error:
                fate = error.fate
                logger.warning(
                    "Job %s (%s) cannot be settled as it ended (%s): %s",
                    delivery.job_id, delivery.job_name, error, _MEANING[fate],
                )  # fmt: skip
            except records.OtherKind as error:
                # The queue has been told, and the history will be; but it ends here.
                fate, self._unusable = Fate.AGREED, error
                self.stop_fetching()
            except (RedisError, OSError) as error:
                self._keeper.hold(token, delivery.job_id)
                if not self._leaving.is_set():
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._leaving.wait(), pause)
                    pause = min(pause * 2, _LONGEST_PAUSE)
                    continue
                logger.warning("Job %s is left to the queue: %s", delivery.job_id, error)
                fate = Fate.UNTOLD
            await verdict.told(fate)
            return taken

    def _lock_lost(self, job_id: str, token: str) -> None:
        logger.warning("The lock of job %s is lost; another worker may run it now", job_id)
        if (delivery := self._running.get((job_id, token))) is not None:
            delivery.cancellation.cancel(LOCK_LOST)
