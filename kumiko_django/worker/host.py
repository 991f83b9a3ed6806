"""A worker process from start to stop, as a list of steps in each direction (B212, B215)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import time
from typing import Any

from kumiko_django.audit import recorder as audit_recorder
from kumiko_django.broker import queues
from kumiko_django.broker.connection import AWAY_ERRORS
from kumiko_django.broker.consumer import Consumer
from kumiko_django.definitions.options import Lane
from kumiko_django.exceptions import BrokerUnavailable
from kumiko_django.history.recorder import Recorder
from kumiko_django.run.mailbox import Mailbox
from kumiko_django.run.runner import Runner
from kumiko_django.worker.boot import enqueue_boot_jobs
from kumiko_django.worker.config import HostConfig
from kumiko_django.worker.gates import Gates
from kumiko_django.worker.housekeeping import Housekeeping
from kumiko_django.worker.reports import Reports
from kumiko_django.worker.scheduler import Schedules
from kumiko_django.worker.written import WrittenRecords

logger = logging.getLogger("kumiko_django.worker")

DRAIN_POLL_SECONDS = 0.25
RECORD_SECONDS = 5.0
"""How long the last records may take while the database is away."""
SETTLE_SECONDS = 5.0
"""How long interrupted jobs may take to be given back."""
LEAVE_SECONDS = 2.0
"""How long the queue may take to be told of runs that have ended at last."""


class Host:
    """Runs the consumers of one process. Made on its event loop and used once (P89)."""

    def __init__(self, config: HostConfig) -> None:
        self._config = config
        self._stop = asyncio.Event()
        self._mailbox = Mailbox(asyncio.get_running_loop())
        self._recorder = Recorder(self._mailbox.post)
        self._housekeeping = Housekeeping()
        self._schedules = Schedules(config.lanes)
        self._reports = Reports(config.lanes)
        self._consumers: dict[Lane, Consumer] = {}
        self._written = WrittenRecords(self._consumers)
        self._runner = Runner(
            self._recorder,
            config.worker_id,
            self._written.note,
            grace_seconds=config.grace_seconds,
            on_stuck=self._retire,
        )
        self._started = False
        self.retired = False
        """Whether it stopped by itself, because of a handler that nothing else could end."""

    def request_stop(self) -> None:
        """Take nothing new and end when what runs has ended, or the grace is over."""
        for consumer in self._consumers.values():
            consumer.stop_fetching()
        self._housekeeping.request_stop()
        self._schedules.request_stop()
        self._reports.request_stop()
        self._stop.set()

    def _retire(self) -> None:
        """Stop, since a handler goes on after its timeout; a new process has to go on instead."""
        if not self.retired:
            logger.error(
                "A handler does not end after its timeout; this process takes no more jobs and "
                "ends, so that another can be started"
            )
        self.retired = True
        self.request_stop()

    async def run(self) -> bool:
        """Host the lanes until told to stop, or until drained.

        Returns:
            Whether every handler has really ended. If not, the process must be left without waiting
            for those that go on.

        Raises:
            BrokerUnavailable: Redis was not reached at the start.
            GateFailed: A boot gate failed; nothing was consumed.
            RuntimeError: The host has run before, or a consumer ended by itself.
        """
        if self._started:
            raise RuntimeError("This host has been started before; make another one.")
        self._started = True
        client = await self._connect()
        if client is None:
            return True
        # What has been loaded by now stays for good; looking through all of it again and again for
        # garbage costs up to a sixth of the time of short jobs.
        gc.collect()
        gc.freeze()
        self._recorder.open()
        consuming: list[asyncio.Task[None]] = []
        try:
            gates_ended = await self._before_consuming()
            if self._stop.is_set():
                return gates_ended
            consuming = self._consume()
            self._housekeeping.open()
            self._reports.open()
            await self._until_stop(client, consuming)
            return await self._wind_down(consuming)
        except Exception:
            # What still runs is given back, as at a stop, so that its record has an end.
            self._runner.interrupt()
            await self._drain(SETTLE_SECONDS)
            raise
        finally:
            await self._tear_down(client, consuming)

    async def _connect(self) -> queues.Client | None:
        """Reach Redis; None when told to stop before that."""
        connecting = asyncio.create_task(
            queues.connect(self._config.connect_seconds), name="kumiko-connect"
        )
        stop = asyncio.create_task(self._stop.wait(), name="kumiko-stop")
        await asyncio.wait([connecting, stop], return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if connecting.done():
            return connecting.result()
        connecting.cancel()
        with contextlib.suppress(asyncio.CancelledError, BrokerUnavailable):
            await (await connecting).aclose()
        return None

    async def _before_consuming(self) -> bool:
        """Gates, schedulers, boot jobs (design 4); whether all handlers of gates have ended."""
        ended = await Gates(self._config, self._recorder, self._stop).run()
        if not self._stop.is_set():
            await asyncio.to_thread(self._schedules.open)
        for lane in self._config.lanes:
            if not self._stop.is_set():
                await enqueue_boot_jobs(lane, self._stop)
        return ended

    def _consume(self) -> list[asyncio.Task[None]]:
        config = self._config
        for lane in config.lanes:
            self._consumers[lane] = Consumer(
                lane, self._runner, concurrency=config.concurrency, name=config.worker_id
            )
        tasks = [
            asyncio.create_task(consumer.run(), name=f"kumiko-consumer-{consumer.lane}")
            for consumer in self._consumers.values()
        ]
        for lane in config.lanes:
            logger.info(
                "consuming lane %s (%d at a time) as %s", lane, config.concurrency, config.worker_id
            )
        return tasks

    async def _until_stop(self, client: queues.Client, consuming: list[asyncio.Task[None]]) -> None:
        waits: list[asyncio.Task[Any]] = [
            asyncio.create_task(self._stop.wait(), name="kumiko-stop")
        ]
        if self._config.drain:
            waits.append(asyncio.create_task(self._until_drained(client), name="kumiko-drain"))
        try:
            await asyncio.wait([*waits, *consuming], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        for task in [*consuming, *waits[1:]]:
            if task.done() and not self._stop.is_set():
                # A consumer does not end by itself. A process that consumes nothing and looks
                # alive is the worst of all, so end it, with a reason.
                error = None if task.cancelled() else task.exception()
                if error is not None or task in consuming:
                    raise RuntimeError(f"{task.get_name()} ended by itself: {error!r}") from error
        self.request_stop()

    async def _until_drained(self, client: queues.Client) -> None:
        """Wait until no lane of ours has anything to do now; work planned for later stays."""
        while True:
            try:
                counts = await queues.counts_of(client, self._config.lanes)
            except AWAY_ERRORS:
                # The consumers say so, and go on when Redis is back. So does this.
                await asyncio.sleep(DRAIN_POLL_SECONDS * 4)
                continue
            if all(count.is_drained for count in counts) and not self._running():
                break
            await asyncio.sleep(DRAIN_POLL_SECONDS)
        later = sum(count.delayed for count in counts)
        logger.info("drained%s", f"; left for later: {later} delayed" if later else "")

    async def _wind_down(self, consuming: list[asyncio.Task[None]]) -> bool:
        """Wait for what runs, then break off and give back the rest (P88).

        Returns:
            Whether nothing had to be broken off.
        """
        grace = self._config.grace_seconds
        deadline = time.monotonic() + grace
        # A job may be on its way from the queue, and counts with those that run. A Redis that does
        # not answer must not hold us up longer than a job may.
        _, fetching = await asyncio.wait(consuming, timeout=max(grace, SETTLE_SECONDS))
        for task in fetching:
            task.cancel()
        await self._drain(max(deadline - time.monotonic(), 0))
        unfinished = self._running()
        if not unfinished:
            return True
        logger.warning("Not ended within %g s and given back to the queue: %d", grace, unfinished)
        self._runner.interrupt()
        self._recorder.hurry(RECORD_SECONDS)
        await self._drain(SETTLE_SECONDS)
        return False

    async def _drain(self, seconds: float) -> None:
        await asyncio.gather(*(consumer.drain(seconds) for consumer in self._consumers.values()))

    async def _tear_down(self, client: queues.Client, consuming: list[asyncio.Task[None]]) -> None:
        """Close everything, whatever happened before (B234, B235)."""
        for consumer in self._consumers.values():
            consumer.stop_fetching()
        for task in consuming:
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await task
        await asyncio.to_thread(self._housekeeping.close)
        await asyncio.to_thread(self._schedules.close)
        await asyncio.to_thread(self._reports.close)
        for consumer in self._consumers.values():
            consumer.leave()
        await self._drain(LEAVE_SECONDS)
        if not await asyncio.to_thread(self._recorder.close, RECORD_SECONDS):
            logger.error(
                "The last records of the history could not be written; the queue keeps them for "
                "the next worker"
            )
        await asyncio.to_thread(audit_recorder.close)
        self._written.tell()
        for consumer in self._consumers.values():
            await consumer.close()
        self._runner.close()
        await client.aclose()

    def _running(self) -> int:
        return sum(consumer.running for consumer in self._consumers.values())
