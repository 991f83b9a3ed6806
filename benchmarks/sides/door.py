"""Passes the door alone and behind other jobs, prints the rates as JSON: ``door WAITING COUNT``.

Of each kind: passes a second with nothing else in the queue, and with so many other jobs waiting.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import django

from benchmarks.project.payloads import payload
from benchmarks.sides.fill import chunks

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


def main(waiting: int, count: int) -> None:
    """Measure all kinds."""
    # One more than is taken, so that the last hand-over is one as well.
    dispatch_many(SEQUENCE, [{}] * (2 * (WARM + count) + 1))
    rates = {"hand-over": [rate(hand_over, count)]}
    for name in DISPATCHED:
        rates[name] = [rate(dispatching(name), count)]
    for numbers in chunks(waiting):
        dispatch_many(OTHERS, [payload(number) for number in numbers])
    for name in DISPATCHED:
        rates[name].append(rate(dispatching(name), count))
    rates["hand-over"].append(rate(hand_over, count))
    sys.stdout.write(f"{json.dumps(rates)}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
