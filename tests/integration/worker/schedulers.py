"""Schedulers as they stand in Redis, read and tampered with past the code under test."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from bullmq import Queue

from kumiko_django import JobDefinition
from kumiko_django.broker.scheduler_store import _run, read_one
from kumiko_django.broker.schedulers import put, tick_id
from kumiko_django.worker.scheduler import LaneSchedules
from tests.helpers.queues import QueueState

HOUR_MS = 3_600_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Schedulers:
    """The schedulers of a queue."""

    def __init__(self, state: QueueState) -> None:
        self.state = state
        self.client = state.client

    def ids(self) -> list[str]:
        found: list[str] = self.client.zrange(self.state.key("repeat"), 0, -1)
        return found

    def record(self, scheduler: str) -> dict[str, str]:
        found: dict[str, str] = self.client.hgetall(self.state.key(f"repeat:{scheduler}"))
        return found

    def next_ms(self, scheduler: str) -> int:
        return int(self.client.zscore(self.state.key("repeat"), scheduler))

    def tick(self, scheduler: str) -> str:
        return tick_id(scheduler, self.next_ms(scheduler))

    def mark(self, scheduler: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.record(scheduler)["kumiko"])
        return found

    def snapshot(self) -> dict[str, str]:
        """Everything in the queue but who is there and when: keys and their content."""
        keys = self.client.scan_iter(match=f"{self.state.base}:*", count=1000)
        return {
            key: self.client.dump(key).__repr__()
            for key in keys
            if not key.endswith("kumiko-schedulers")
        }

    def make_due(self, scheduler: str, seconds: float) -> int:
        """Let the pending tick be one of so many seconds ago that can be fetched: its time in ms.

        One step for whoever consumes the queue meanwhile.
        """
        record = read_one("worker", scheduler)
        due_ms = (now_ms() - round(seconds * 1000)) // 1000 * 1000
        assert _run(put(record, due_ms, replaced=record.tick_id)) == 1
        return due_ms

    def make_late(self, scheduler: str, seconds: float) -> int:
        """The same for a tick that stays where it was planned: nobody may consume the queue."""
        due_ms = self.make_due(scheduler, seconds)
        late = tick_id(scheduler, due_ms)
        assert self.client.lrem(self.state.key("wait"), 0, late) == 1
        self.client.zadd(self.state.key("delayed"), {late: due_ms << 12})
        return due_ms

    def all_were_away(self, seconds: float) -> None:
        """Let the lane's last sign of a worker be so old."""
        key = self.state.key("kumiko-schedulers")
        self.client.hset(key, mapping={"seen": str(now_ms() - round(seconds * 1000))})


def follow(*definitions: JobDefinition) -> LaneSchedules:
    """Start a process with these definitions, as far as schedules go."""
    process = LaneSchedules("worker", definitions)
    process.follow()
    return process


def with_queue(redis_url: str, queue: str, action: Any) -> Any:
    """Do something with the package's own ``Queue``: ``async def action(queue)``."""

    async def main() -> Any:
        client = Queue(queue, {"connection": redis_url})
        try:
            return await action(client)
        finally:
            await client.close()

    return asyncio.run(main())
