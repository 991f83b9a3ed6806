"""Adds jobs and prints how many a second: ``dispatch KIND COUNT``.

One caller, one call after the other; a tenth as many are added before, unmeasured. Ours are
``dispatch``, ``adispatch`` and ``dispatch-many``; ``add`` and ``add-bulk`` are the raw queue's,
connected by URL as it ships. Those with ``many`` and ``bulk`` give 1,000 jobs a call.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

import django
from bullmq import Queue

from benchmarks.loops import use_fast_loop
from benchmarks.project.payloads import RETENTION, payload
from benchmarks.sides.fill import chunks
from benchmarks.sides.raw_queue import NAME, QUEUE, jobs, redis_url

JOB = "bench:job:noop-sync"

django.setup()

from kumiko_django import adispatch, dispatch, dispatch_many  # noqa: E402  (needs the setup)


def timed(add: Callable[[int], object], count: int) -> float:
    """Jobs a second of sync code."""
    add(count // 10)
    began = time.perf_counter()
    add(count)
    return count / (time.perf_counter() - began)


async def atimed(add: Callable[[int], Awaitable[object]], count: int) -> float:
    """Jobs a second of async code."""
    await add(count // 10)
    began = time.perf_counter()
    await add(count)
    return count / (time.perf_counter() - began)


def dispatch_each(count: int) -> None:
    """``dispatch``, one by one."""
    for number in range(count):
        dispatch(JOB, payload(number))


def dispatch_thousands(count: int) -> None:
    """``dispatch_many`` with 1,000 payloads a call."""
    for numbers in chunks(count):
        dispatch_many(JOB, [payload(number) for number in numbers])


async def adispatch_each(count: int) -> None:
    """``adispatch``, each awaited."""
    for number in range(count):
        await adispatch(JOB, payload(number))


async def raw(kind: str, count: int) -> float:
    """``Queue.add``, each awaited, or ``Queue.addBulk`` with 1,000 jobs a call."""
    queue = Queue(QUEUE, {"connection": redis_url()})

    async def add_each(number_of_jobs: int) -> None:
        for number in range(number_of_jobs):
            await queue.add(NAME, payload(number), RETENTION)

    async def add_thousands(number_of_jobs: int) -> None:
        for numbers in chunks(number_of_jobs):
            await queue.addBulk(list(jobs(numbers)))

    rate = await atimed(add_each if kind == "add" else add_thousands, count)
    await queue.close()
    return rate


def main(kind: str, count: int) -> None:
    """Measure one kind."""
    if kind == "dispatch":
        rate = timed(dispatch_each, count)
    elif kind == "dispatch-many":
        rate = timed(dispatch_thousands, count)
    elif kind == "adispatch":
        rate = asyncio.run(atimed(adispatch_each, count))
    else:
        rate = asyncio.run(raw(kind, count))
    sys.stdout.write(f"{rate}\n")


if __name__ == "__main__":
    use_fast_loop()
    main(sys.argv[1], int(sys.argv[2]))
