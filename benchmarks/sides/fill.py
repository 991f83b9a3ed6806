"""Fills a queue before its worker starts: ``fill ours noop-sync 1000`` or ``fill raw - 1000``."""

from __future__ import annotations

import asyncio
import sys

import django

from benchmarks.project.payloads import payload
from benchmarks.sides.raw_queue import QUEUE, jobs, redis_url

CHUNK = 1000


def chunks(count: int) -> list[range]:
    """The numbers from 0 on, in chunks."""
    return [range(first, min(first + CHUNK, count)) for first in range(0, count, CHUNK)]


def fill_ours(name: str, count: int) -> None:
    """Dispatch jobs through the package's public door."""
    django.setup()
    from kumiko_django import dispatch_many

    for numbers in chunks(count):
        dispatch_many(f"bench:job:{name}", [payload(number) for number in numbers])


async def fill_raw(count: int) -> None:
    """Add jobs with ``Queue.addBulk``."""
    from bullmq import Queue

    queue = Queue(QUEUE, {"connection": redis_url()})
    for numbers in chunks(count):
        await queue.addBulk(list(jobs(numbers)))
    await queue.close()


def main(side: str, name: str, count: int) -> None:
    """Fill the queue of a side."""
    if side == "ours":
        fill_ours(name, count)
    else:
        asyncio.run(fill_raw(count))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
