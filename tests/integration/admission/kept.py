"""What the door keeps, read straight from Redis; and a worker that goes step by step."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import redis

from kumiko_django.broker.connection import current_address, new_async_client
from kumiko_django.broker.delivery import Complete, Delivery, Settlement
from kumiko_django.broker.door import Claim
from kumiko_django.broker.lane_worker import LaneWorker
from kumiko_django.definitions.options import Lane
from kumiko_django.run.admission import rules_of


class Kept:
    """The keys of the door."""

    def __init__(self, client: redis.Redis, queue_prefix: str) -> None:
        self.client: Any = client
        self.base = f"bull:{queue_prefix}:kumiko:admission:"

    def places(self, key: str) -> list[str]:
        return list(self.client.zrange(f"{self.base}places:{key}", 0, -1))

    def slots(self, key: str) -> dict[str, str]:
        return dict(self.client.hgetall(f"{self.base}slots:{key}"))

    def parked(self, key: str) -> list[str]:
        """Ids of what is parked, the next one first."""
        refs = self.client.zrange(f"{self.base}parked:{key}", 0, -1)
        return [ref.partition(":")[2] for ref in refs]

    def left(self) -> list[str]:
        """Every key but the counter, which is one for all and stays."""
        found = self.client.scan_iter(match=f"{self.base}*", count=5000)
        return sorted(key for key in found if key != f"{self.base}counter")


@dataclass(frozen=True)
class Taken:
    """A job that was fetched."""

    job: Any
    delivery: Delivery
    token: str

    @property
    def id(self) -> str:
        return self.delivery.job_id


class Worker:
    """The steps of a consumer, without its loop and its lock keeper."""

    def __init__(self, lane: Lane = "worker") -> None:
        self._runner = asyncio.Runner()
        self._lane: Lane = lane
        self._client: Any = None
        self._made: LaneWorker | None = None
        self._tokens = 0

    def fetch(self) -> Taken | None:
        """Take the next job."""
        return self._runner.run(self._fetch())

    def take(self) -> Taken:
        """Take the next job, which is there."""
        taken = self.fetch()
        assert taken is not None, "nothing is there to be fetched"
        return taken

    def claim(self, taken: Taken) -> Claim:
        rules = rules_of(taken.delivery)
        assert rules is not None
        return self._runner.run(self._worker().claim(taken.delivery, taken.token, rules))

    def run(self) -> Taken:
        """Take the next job and claim its slot, which is free."""
        taken = self.take()
        claim = self.claim(taken)
        assert claim.verdict == "run", claim
        return taken

    def settle(self, taken: Taken, settlement: Settlement | None = None) -> Taken | None:
        """Settle a job; with what was fetched in the same step, if anything was."""
        delivery = replace(taken.delivery, rules=rules_of(taken.delivery))
        following = self._runner.run(
            self._worker().settle(
                taken.job, delivery, taken.token, settlement or Complete(), "", fetch=False
            )
        )
        return None if following is None else Taken(*following, taken.token)

    def requeue_stalled(self) -> list[str]:
        return self._runner.run(self._worker().requeue_stalled())

    def close(self) -> None:
        if self._client is not None:
            self._runner.run(self._close())
        self._runner.close()

    async def _fetch(self) -> Taken | None:
        self._tokens += 1
        token = f"token-{id(self)}-{self._tokens}"
        fetched = await (await self._opened()).fetch(token)
        return None if fetched is None else Taken(*fetched, token)

    async def _opened(self) -> LaneWorker:
        if self._made is None:
            self._client = new_async_client(current_address(), patient=True)
            self._made = LaneWorker(self._lane, self._client, "step-by-step")
        return self._made

    def _worker(self) -> LaneWorker:
        assert self._made is not None, "nothing has been fetched"
        return self._made

    async def _close(self) -> None:
        if self._made is not None:
            await self._made.channel.close()
        await self._client.aclose()
