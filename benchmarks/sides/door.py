"""Passes the door alone and behind others, prints rates as JSON: ``door FIRST WAITING COUNT``.

Of each kind: passes a second with nothing else in the queue, and with so many other jobs waiting;
``FIRST`` says which of the two is measured first, ``alone`` or ``behind``. Redis is emptied before
each.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import django
import redis

from benchmarks.project.payloads import payload
from benchmarks.sides.fill import chunks
from benchmarks.sides.raw_queue import redis_url

django.setup()

from kumiko_django import dispatch, dispatch_many  # noqa: E402  (needs the setup)
from kumiko_django.broker.connection import current_address, new_async_client  # noqa: E402
from kumiko_django.broker.delivery import Complete  # noqa: E402
from kumiko_django.broker.lane_worker import LaneWorker  # noqa: E402
from kumiko_django.run.admission import rules_of  # noqa: E402

OTHERS, SEQUENCE = "bench:job:noop-sync", "bench:job:door-sequence"
DISPATCHED = ("skip", "replace", "cap")
WARM = 100


def rate(action: Callable[[int], None], count: int) -> float:
    """How often a second it can be done."""
    action(WARM)
    began = time.perf_counter()
    action(count)
    return count / (time.perf_counter() - began)


def dispatching(name: str) -> Callable[[int], None]:
    """Dispatches one by one."""

    def each(count: int) -> None:
        for number in range(count):
            dispatch(f"bench:job:door-{name}", payload(number))

    return each


def hand_over(count: int) -> None:
    """Fetch, claim and settle the jobs of one sequence, each of which hands over to the next."""
    asyncio.run(_hand_over(count))


async def _hand_over(count: int) -> None:
    client = new_async_client(current_address(), patient=True)
    worker = LaneWorker("worker", client, "bench")
    for _ in range(count):
        taken = await worker.fetch("bench")
        rules = None if taken is None else rules_of(taken[1])
        if taken is None or rules is None:
            raise RuntimeError("no job of the sequence is at the front")
        job, delivery = taken
        claim = await worker.claim(delivery, "bench", rules)
        if claim.verdict != "run":
            raise RuntimeError(f"{delivery.job_id} is {claim.verdict}")
        held = replace(delivery, rules=rules)
        await worker.settle(job, held, "bench", Complete(), "", fetch=False)
    await worker.channel.close()
    await client.aclose()


def side(waiting: int, count: int) -> dict[str, float]:
    """Rates of all kinds behind so many waiting jobs of others."""
    with redis.Redis.from_url(redis_url()) as client:
        client.flushall()
    # One more than is taken, so that the last hand-over is one as well.
    dispatch_many(SEQUENCE, [{}] * (WARM + count + 1))
    for numbers in chunks(waiting):
        dispatch_many(OTHERS, [payload(number) for number in numbers])
    rates = {name: rate(dispatching(name), count) for name in DISPATCHED}
    return {**rates, "hand-over": rate(hand_over, count)}


def main(first: str, waiting: int, count: int) -> None:
    """Measure both sides."""
    sides = {"alone": 0, "behind": waiting}
    rates = {
        name: side(sides[name], count) for name in sorted(sides, key=lambda name: name != first)
    }
    sys.stdout.write(f"{json.dumps(rates)}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
