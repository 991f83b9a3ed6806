"""The consumer of one lane: fetch while there are free slots, run, settle; stop in two steps.

``run`` ends when it was told to stop *fetching*. Jobs that run then go on, with their locks renewed
(bullmq-python 1.2), until they end or are interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import replace
from typing import Any
from uuid import uuid4

from redis.exceptions import RedisError

from kumiko_django.broker.address import RedisAddress
from kumiko_django.broker.bullmq import queue_scripts
from kumiko_django.broker.connection import current_address, new_async_client
from kumiko_django.broker.delivery import Delivery, Handle, Settlement
from kumiko_django.broker.lane_worker import LaneWorker, LockLost
from kumiko_django.broker.locks import LockKeeper
from kumiko_django.definitions.options import Lane
from kumiko_django.types.scrub import scrub

logger = logging.getLogger("kumiko_django.broker")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
_WAKE_SECONDS = 1.0
MOST_FAULTS = 10
"""A consumer that only meets faults, one after the other, is better started anew."""


class Consumer:
    """Consumes one lane's queue on the running event loop."""

    def __init__(self, lane: Lane, handle: Handle, *, concurrency: int, name: str) -> None:
        """Create a consumer; nothing connects before :meth:`run`.

        Args:
            lane: The lane.
            handle: Runs one delivery. Must not raise.
            concurrency: Jobs at a time.
            name: The worker's name, shown by Redis.
        """
        self.lane = lane
        self._handle = handle
        self._concurrency = concurrency
        self._address = current_address()
        self._client = new_async_client(_lenient(self._address), patient=True)
        self._worker = LaneWorker(lane, self._client, name)
        self._keeper = LockKeeper(
            self._address, queue_scripts(self._worker.queue), self._worker.lock_ms, self._lock_lost
        )
        self._running: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._stopping = False
        self._leaving = asyncio.Event()
        self._idle: asyncio.Future[None] | None = None
        self._token_base = uuid4().hex
        self._fetches = 0
        self._faults = 0
        self._away = False
        self._pause = _FIRST_PAUSE

    @property
    def running(self) -> int:
        """How many jobs run now."""
        return len(self._running)

    def stop_fetching(self) -> None:
        """Take nothing new. Safe to call again."""
        self._stopping = True
        self._changed.set()
        if self._idle is not None:
            self._idle.cancel()

    def leave(self) -> None:
        """Stop trying to settle jobs with a Redis that is away: the process ends now."""
        self._leaving.set()

    async def run(self) -> None:
        """Consume until told to stop fetching."""
        self._keeper.open()
        stalled = asyncio.create_task(self._watch_stalled(), name=f"kumiko-stalled-{self.lane}")
        try:
            while await self._slot_is_free():
                taken = await self._take()
                if taken is not None:
                    self._begin(*taken)
        finally:
            stalled.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await stalled
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
        if self._running:
            await asyncio.wait(self._running.values(), timeout=seconds)
        return len(self._running)

    async def close(self) -> None:
        """Release threads and connections."""
        await asyncio.to_thread(self._keeper.close)
        await self._client.aclose()

    async def _slot_is_free(self) -> bool:
        while not self._stopping and len(self._running) >= self._concurrency:
            self._changed.clear()
            await self._changed.wait()
        return not self._stopping

    async def _take(self) -> tuple[Any, Delivery, str] | None:
        self._fetches += 1
        token = f"{self._token_base}:{self._fetches}"
        try:
            fetched = await self._worker.fetch(token)
            self._tell_back()
            if fetched is not None:
                return (*fetched, token)
            await self._wait_idle()
        except (RedisError, OSError) as error:
            await self._wait_away(error)
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
        """Redis is away, or refuses: wait with growing pauses, say so once (P93)."""
        if not self._away:
            logger.warning(
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

    def _begin(self, job: Any, delivery: Delivery, token: str) -> None:
        self._keeper.hold(token, delivery.job_id)
        task = asyncio.create_task(
            self._work(job, delivery, token), name=f"kumiko-job-{delivery.job_id}"
        )
        # By token: a job that lost its lock may be fetched again while it still runs here.
        self._running[token] = task
        task.add_done_callback(lambda _: self._ended(token))

    def _ended(self, token: str) -> None:
        self._keeper.release(token)
        self._running.pop(token, None)
        self._changed.set()

    async def _work(self, job: Any, delivery: Delivery, token: str) -> None:
        try:
            settlement = await self._handle(delivery)
            await self._settle(job, delivery, token, settlement)
        except Exception:
            # Ours to mend, never the loop's end (bullmq-python 1.3). The job's lock runs out, and
            # the queue hands it out again.
            logger.exception("Job %s (%s) could not be settled", delivery.job_id, delivery.job_name)

    async def _settle(
        self, job: Any, delivery: Delivery, token: str, settlement: Settlement
    ) -> None:
        """Tell the queue, for as long as it takes.

        A job that is done must not run again because Redis was away for a moment (bullmq-python
        1.11).
        """
        pause = _FIRST_PAUSE
        while True:
            try:
                await self._worker.settle(job, token, settlement)
                return
            except LockLost as error:
                logger.warning(
                    "Job %s (%s) lost its lock while it ran; its outcome here is void: %s",
                    delivery.job_id, delivery.job_name, error,
                )  # fmt: skip
                return
            except (RedisError, OSError) as error:
                if self._leaving.is_set():
                    logger.warning("Job %s is left to the queue: %s", delivery.job_id, error)
                    return
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._leaving.wait(), pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    async def _watch_stalled(self) -> None:
        while True:
            try:
                for job_id in await self._worker.requeue_stalled():
                    logger.warning("Job %s lost its worker and is queued again", job_id)
            except (RedisError, OSError):
                logger.debug("Stalled jobs cannot be looked for now", exc_info=True)
            except Exception:
                logger.exception("Looking for stalled jobs of lane %s met a fault", self.lane)
            await asyncio.sleep(self._worker.lock_ms / 1000)

    def _lock_lost(self, job_id: str) -> None:
        logger.warning("The lock of job %s is lost; another worker may run it now", job_id)


def _lenient(address: RedisAddress) -> RedisAddress:
    """The address for a client that meets text of others: bytes that are no UTF-8, lone surrogates.

    An error while decoding would strike again at every fetch of that job, and one while encoding
    would run a failed job again because its error cannot be told.
    """
    return replace(address, arguments={**address.arguments, "encoding_errors": "replace"})
