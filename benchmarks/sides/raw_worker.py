"""The worker of the ``bullmq`` package as it ships: ``raw_worker noop|insert CONCURRENCY``.

It connects by URL, with a socket time-out that outlasts its blocking read (with the default of
redis-py 8 it goes deaf on an idle queue). ``insert`` does the same ORM insert as the other sides in
as many threads as there are jobs at a time, whose connections stay open.
"""

from __future__ import annotations

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import django
from bullmq import Worker

from benchmarks.loops import use_fast_loop
from benchmarks.project.payloads import RETENTION
from benchmarks.sides.raw_queue import QUEUE, redis_url

django.setup()

from benchmarks.project import work  # noqa: E402  (models need the setup)


async def noop(job: Any, token: str) -> None:
    """Nothing."""


async def insert(job: Any, token: str) -> None:
    """The insert, in a thread."""
    await asyncio.to_thread(work.insert, job.data)


async def main(processor: str, concurrency: int) -> None:
    """Work until the process is ended."""
    # to_thread has no more than six threads on two cores.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(concurrency))
    worker = Worker(
        QUEUE,
        {"noop": noop, "insert": insert}[processor],
        {
            "connection": redis_url(),
            "autorun": False,
            "concurrency": concurrency,
            "removeOnComplete": RETENTION["removeOnComplete"],
            "removeOnFail": RETENTION["removeOnFail"],
        },
    )
    await worker.run()


if __name__ == "__main__":
    use_fast_loop()
    try:
        asyncio.run(main(sys.argv[1], int(sys.argv[2])))
    finally:
        os._exit(1)  # it was to be ended from outside
