"""Between the fetch of a job and its run: the door says whether it may run now (design 4)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from redis.exceptions import RedisError, ResponseError

from kumiko_django.broker.delivery import Delivery, Desk, Verdict
from kumiko_django.broker.door import Claim
from kumiko_django.broker.lane_worker import LaneWorker
from kumiko_django.broker.locks import LockKeeper
from kumiko_django.broker.rules import Rules

logger = logging.getLogger("kumiko_django.broker")

_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0


class Entrance:
    """Lets fetched jobs run, or not. Used by one consumer."""

    def __init__(
        self,
        worker: LaneWorker,
        desk: Desk,
        keeper: LockKeeper,
        leaving: asyncio.Event,
        on_lost: Callable[[str, str], None],
    ) -> None:
        self._worker = worker
        self._desk = desk
        self._keeper = keeper
        self._leaving = leaving
        self._on_lost = on_lost

    async def run(self, delivery: Delivery, token: str) -> tuple[Delivery, Verdict] | None:
        """Run a job if it may.

        Returns:
            The delivery with what it holds now, and the verdict on it; None if it is out of our
            hands again: parked, or another worker's.

        Raises:
            RedisError: Redis refuses, or is away while the process ends.
        """
        if delivery.not_wanted:
            return delivery, await self._desk.skip(delivery, delivery.not_wanted)
        rules = self._desk.rules(delivery)
        if rules is None:
            return delivery, await self._desk.run(delivery)
        delivery, claim = replace(delivery, rules=rules), Claim("run")
        # One that the queue has given up does not run; it only gives back what it held.
        if not delivery.queue_failure and (rules.slot_key or not delivery.has_passed):
            claim = await self._claim(delivery, token, rules)
        match claim.verdict:
            case "run":
                delivery = replace(delivery, fencing_token=claim.fence or None)
                return delivery, await self._desk.run(delivery)
            case "skipped":
                return delivery, await self._desk.skip(delivery, claim.reason)
            case "lost":
                self._on_lost(delivery.job_id, token)
            case "parked":
                logger.debug("Job %s (%s) is parked", delivery.job_id, delivery.job_name)
        return None

    async def _claim(self, delivery: Delivery, token: str, rules: Rules) -> Claim:
        """Ask for as long as it takes: a job that is let go counts as one that lost its worker."""
        pause = _FIRST_PAUSE
        while True:
            # A renewal that comes after the parking would take the lock for lost.
            self._keeper.release(token, delivery.job_id)
            try:
                claim = await self._worker.claim(delivery, token, rules)
            except (RedisError, OSError) as error:
                if isinstance(error, ResponseError) or self._leaving.is_set():
                    raise
                self._keeper.hold(token, delivery.job_id)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._leaving.wait(), pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                if claim.verdict in ("run", "skipped"):
                    self._keeper.hold(token, delivery.job_id)
                return claim
