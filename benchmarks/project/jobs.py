"""The jobs, as a user of kumiko_django writes them."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from benchmarks.project import work
from kumiko_django import JobContext, job

Payload = dict[str, Any]


@job
def noop_sync(payload: Payload, ctx: JobContext) -> None:
    """Nothing, in a thread."""


@job
async def noop_async(payload: Payload, ctx: JobContext) -> None:
    """Nothing, on the event loop."""


@job(per_tenant="BENCH_TENANTS" in os.environ)
async def noop_each_tenant(payload: Payload, ctx: JobContext) -> None:
    """Nothing, for every tenant where there are any."""


@job
def insert_sync(payload: Payload, ctx: JobContext) -> None:
    """One insert, in a thread."""
    work.insert(payload)


@job
async def insert_async(payload: Payload, ctx: JobContext) -> None:
    """One insert through ``acreate``."""
    await work.ainsert(payload)


@job
async def stamp_async(payload: Payload, ctx: JobContext) -> float:
    """Answer when the handler began; the payload says when the job was dispatched."""
    return time.time()


@job
def stamp_sync(payload: Payload, ctx: JobContext) -> float:
    """Do what ``stamp_async`` does in a thread."""
    return time.time()


@job(concurrency="skip")
async def door_skip(payload: Payload, ctx: JobContext) -> None:
    """Nothing; one at a time is let in."""


@job(concurrency="replace")
async def door_replace(payload: Payload, ctx: JobContext) -> None:
    """Nothing; the last one stays."""


@job(max_per_tenant=100)
async def door_cap(payload: Payload, ctx: JobContext) -> None:
    """Nothing; a hundred are let in."""


@job(concurrency="sequential")
async def door_sequence(payload: Payload, ctx: JobContext) -> None:
    """Nothing; one after the other."""


@job(concurrency="sequential")
async def door_hold(payload: Payload, ctx: JobContext) -> None:
    """Run for an hour; those after it stay parked."""
    await asyncio.sleep(60 * 60)
