"""No job waits beside a worker that sleeps: whoever puts one there wakes one (bullmq-python 1.1).

An idle worker looks into the queue every five seconds anyway, which hides a lost word. Here it
sleeps for longer than the tests wait.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from bullmq import Job, Queue

from kumiko_django import Backoff, JobContext, dispatch
from kumiko_django.broker import lane_worker
from kumiko_django.history.models import JobRun
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.waiting import wait_until
from tests.integration.worker.host_thread import Define, StartHost, add_raw

pytestmark = pytest.mark.once

SLEEP, AWAKE = 18.0, 10.0
"""Seconds that a worker sleeps, and within which it has to be awake. (A socket lasts for 20.)"""
ROUNDS = 24
NAME = "testapp:job:works"


@pytest.fixture(autouse=True)
def _deep_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_worker, "IDLE_BLOCK_SECONDS", SLEEP)
    monkeypatch.setattr(lane_worker, "LONGEST_BLOCK_SECONDS", SLEEP)


def works(payload: dict[str, Any], ctx: JobContext) -> None:
    if payload.get("fails", 0) >= ctx.attempt:
        raise ValueError("on purpose")


class Ways:
    """Ways into a queue; each gives the ids of what it has put there."""

    def __init__(self, redis_url: str, queue: str) -> None:
        self._redis_url = redis_url
        self._queue = queue

    def all(self) -> dict[str, Callable[[], list[str]]]:
        return {
            "dispatched": self.sent,
            "dispatched as low": lambda: self.sent(priority="low"),
            "dispatched as high": lambda: self.sent(priority="high"),
            "dispatched with a number": lambda: self.sent(priority=7),
            "delayed": lambda: self.sent(delay=0.02),
            "delayed as low": lambda: self.sent(delay=0.02, priority="low"),
            "tried again": lambda: self.sent(fails=1),
            "tried again as low": lambda: self.sent(fails=1, priority="low"),
            "given a turn": self.in_turn,
            "promoted": self.promoted,
            "held up by a pause": self.resumed,
            "added by others": self.added,
        }

    def sent(self, fails: int = 0, **how: Any) -> list[str]:
        return [dispatch(NAME, {"fails": fails}, tenant_id="acme", **how).job_id]

    def in_turn(self) -> list[str]:
        made = [dispatch("testapp:job:in-turn", {}, tenant_id="acme") for _ in range(3)]
        return [one.job_id for one in made]

    def promoted(self) -> list[str]:
        (job_id,) = self.sent(delay=3600)

        async def promote(queue: Queue) -> None:
            await (await Job.fromId(queue, job_id)).promote()

        self._with_package(promote)
        return [job_id]

    def resumed(self) -> list[str]:
        self._with_package(lambda queue: queue.pause())
        job_ids = self.sent()
        self._with_package(lambda queue: queue.resume())
        return job_ids

    def added(self) -> list[str]:
        return add_raw(self._redis_url, self._queue, [(NAME, {"_tenantId": "acme"}, {})])

    def _with_package(self, step: Callable[[Queue], Any]) -> None:
        async def call() -> None:
            queue = Queue(self._queue, {"connection": self._redis_url})
            try:
                await step(queue)
            finally:
                await queue.close()

        asyncio.run(call())


def ended(job_id: str, how: str) -> None:
    wait_until(
        lambda: JobRun.objects.filter(queue_job_id=job_id, status="completed").exists(),
        description=f"the job that was {how} has run",
        timeout=AWAKE,
    )


@pytest.mark.parametrize("concurrency", [1, 3])
def test_every_way_into_a_queue_wakes_a_worker(
    concurrency: int,
    define: Define,
    host: StartHost,
    queue_state: QueueStateFactory,
    redis_url: str,
) -> None:
    """bullmq-python 1.14, user-needs 42: with and without a priority, delayed, retried, handed a
    turn, and by other clients; one after the other, so that the worker falls asleep before each."""
    define(works, name="works", retries=1, backoff=Backoff.fixed(0.01))
    define(works, name="in-turn", concurrency="sequential")
    made = Ways(redis_url, queue_state("worker").queue)
    ways = made.all()
    later = made.sent(delay=3600)  # for which it sleeps, too
    host("worker", concurrency=concurrency)
    seed = time.time_ns()
    order = [*ways, *random.Random(seed).choices(list(ways), k=ROUNDS - len(ways))]
    for how in order:
        for job_id in ways[how]():
            ended(job_id, f"{how} (seed {seed})")
    assert queue_state("worker").delayed == later
