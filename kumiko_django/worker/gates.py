"""Boot gates: jobs that a starting worker runs itself, before it consumes (B108-B111, P58).

A gate is a run like any other: scope, context, signals, history. It is in no queue, so a failing
one keeps the worker from starting instead of failing somewhere in the background.
"""

from __future__ import annotations

import asyncio
import logging
import time

from kumiko_django.broker.delivery import Complete, Delivery, Fail, Fate, GiveBack
from kumiko_django.broker.envelope import Envelope, Metadata
from kumiko_django.broker.keys import boot_id
from kumiko_django.definitions.boot import ONE_AT_A_TIME
from kumiko_django.definitions.job import JobDefinition
from kumiko_django.definitions.options import Lane
from kumiko_django.definitions.registry import registry
from kumiko_django.history.recorder import Recorder
from kumiko_django.run.runner import Runner
from kumiko_django.types.ids import SYSTEM
from kumiko_django.worker.config import HostConfig
from kumiko_django.worker.turn import Turn

logger = logging.getLogger("kumiko_django.worker")

SETTLE_SECONDS = 5.0
"""How long a gate that is broken off at a stop may take to end."""


class GateFailed(Exception):
    """A gate failed; the worker must not start."""

    def __init__(self, name: str, error: str) -> None:
        super().__init__(f"The boot gate {name} failed, so nothing is consumed: {error}")


def gates_of(lane: Lane) -> list[JobDefinition]:
    """The gates of a lane, in the order of registration."""
    return [one for one in registry.all() if one.boot_gate and one.lane == lane]


class Gates:
    """The gates of one starting process. Made on its event loop and used once."""

    def __init__(self, config: HostConfig, recorder: Recorder, stop: asyncio.Event) -> None:
        """Create them.

        Args:
            config: What the process is asked to do.
            recorder: Where the history goes; open.
            stop: Set when the process is to stop.
        """
        self._config = config
        self._stop = stop
        # Of their own: nothing has to be forgotten by a queue when their records are written.
        self._runner = Runner(recorder, config.worker_id, lambda delivery: None)

    async def run(self) -> bool:
        """Run the gates of all lanes, one after the other, until one fails or the process stops.

        Returns:
            Whether every handler has really ended.

        Raises:
            GateFailed: One did.
            BrokerUnavailable: Redis does not answer while a gate waits for its turn.
        """
        try:
            for lane in self._config.lanes:
                for definition in gates_of(lane):
                    if not self._stop.is_set() and not await self._in_turn(definition):
                        return False
        finally:
            self._runner.close()
        return True

    async def _in_turn(self, definition: JobDefinition) -> bool:
        if definition.boot_gate != ONE_AT_A_TIME:
            return await self._until_ended(definition)
        turn = Turn(f"gate:{boot_id(definition.qualified_name)}")
        if not await turn.take(self._stop):
            return True
        try:
            return await self._until_ended(definition)
        finally:
            await turn.give_back()

    async def _until_ended(self, definition: JobDefinition) -> bool:
        """Run a gate; when told to stop meanwhile, give it the grace and then break it off."""
        run = asyncio.create_task(self._run(definition), name="kumiko-gate")
        stop = asyncio.create_task(self._stop.wait(), name="kumiko-stop")
        await asyncio.wait([run, stop], return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not run.done():
            await asyncio.wait([run], timeout=self._config.grace_seconds)
        if run.done():
            run.result()
            return True
        logger.warning("The boot gate %s is broken off", definition.qualified_name)
        self._runner.interrupt()
        await asyncio.wait([run], timeout=SETTLE_SECONDS)
        return False

    async def _run(self, definition: JobDefinition) -> None:
        name = definition.qualified_name
        logger.info("boot gate %s", name)
        verdict = await self._runner.run(_delivery(definition))
        # No queue has a say in it.
        await verdict.told(Fate.AGREED)
        match verdict.settlement:
            case Complete() | GiveBack():
                return
            case Fail(error, traceback):
                logger.error("Boot gate %s failed: %s\n%s", name, error, traceback)
                raise GateFailed(name, error)
            case other:
                asked = type(other).__name__
                raise GateFailed(name, f"it asks to run again later ({asked}); only a job can.")


def _delivery(definition: JobDefinition) -> Delivery:
    """A gate as if it had been fetched: one attempt, which is the last (P60), for no tenant."""
    return Delivery(
        lane=definition.lane,
        job_name=definition.qualified_name,
        job_id=boot_id(definition.qualified_name),
        data=Envelope({}, Metadata(tenant_id=SYSTEM)).to_data(),
        created_at_ms=time.time_ns() // 1_000_000,
        delay_ms=0,
        attempt=1,
        max_attempts=1,
        start=1,
        queued=False,
    )
