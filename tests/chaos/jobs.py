"""The jobs of the kill tests, and how often their handlers were called.

The payload says what a call does: ``ms`` it takes (``first_ms``: the first call), ``lines`` it
logs, half of them before that time and half after it, ``dies``: the first call kills its process.
The definitions are registered by the app in worker processes and by a fixture in the test's.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from functools import cache
from typing import Any, TypeAlias

import redis
import redis.asyncio
from django.conf import settings

from kumiko_django import Backoff, JobContext, JobDefinition

Payload: TypeAlias = dict[str, Any]


class Refused(Exception):
    """What jobs raise that fail on purpose."""


def calls_key(queue_prefix: str) -> str:
    """Name the hash that counts calls of handlers by job id."""
    return f"{queue_prefix}:calls"


def work(payload: Payload, ctx: JobContext) -> int:
    """Do what the payload says, in a thread."""
    call = int(_client().hincrby(calls_key(settings.KUMIKO["QUEUE_PREFIX"]), ctx.job_id, 1))
    _begin(payload, ctx, call)
    time.sleep(_seconds(payload, call))
    return _end(payload, ctx)


async def work_async(payload: Payload, ctx: JobContext) -> int:
    """Do what ``work`` does, on the event loop."""
    counting = _async_client().hincrby(calls_key(settings.KUMIKO["QUEUE_PREFIX"]), ctx.job_id, 1)
    call = int(await counting)
    _begin(payload, ctx, call)
    await asyncio.sleep(_seconds(payload, call))
    return _end(payload, ctx)


def fails_once(payload: Payload, ctx: JobContext) -> int:
    """Do what ``work`` does, and fail at the first attempt."""
    return _refuse_first(ctx, work(payload, ctx))


async def fails_once_async(payload: Payload, ctx: JobContext) -> int:
    """Do what ``fails_once`` does, on the event loop."""
    return _refuse_first(ctx, await work_async(payload, ctx))


def fails(payload: Payload, ctx: JobContext) -> None:
    """Do what ``work`` does, and fail for good."""
    work(payload, ctx)
    raise Refused("fails on purpose")


# No pause at all cannot be had: the shortest is a millisecond.
_AT_ONCE, _SOON = Backoff.fixed(0.001), Backoff.fixed(0.05)

JOBS = {
    job.name: job
    for job in (
        JobDefinition(work, app_label="chaos"),
        JobDefinition(work_async, app_label="chaos"),
        JobDefinition(fails_once, app_label="chaos", retries=1, backoff=_AT_ONCE),
        JobDefinition(
            fails_once,
            name="fails-once-much-later",
            app_label="chaos",
            retries=1,
            backoff=Backoff.fixed(1.0),
        ),
        JobDefinition(
            fails_once, name="fails-once-later", app_label="chaos", retries=1, backoff=_SOON
        ),
        JobDefinition(fails_once_async, app_label="chaos", retries=1, backoff=_SOON),
        JobDefinition(fails, app_label="chaos"),
    )
}
"""By short name."""


def _begin(payload: Payload, ctx: JobContext, call: int) -> None:
    if call == 1 and payload.get("dies"):
        os.kill(os.getpid(), signal.SIGKILL)
    lines: int = payload.get("lines", 0)
    _log(ctx, 1, lines // 2)


def _end(payload: Payload, ctx: JobContext) -> int:
    lines: int = payload.get("lines", 0)
    _log(ctx, lines // 2 + 1, lines)
    return lines


def _log(ctx: JobContext, first: int, last: int) -> None:
    for number in range(first, last + 1):
        ctx.log.info("line", number=number)


def _seconds(payload: Payload, call: int) -> float:
    milliseconds: float = payload.get("ms", 0)
    if call == 1:
        milliseconds = payload.get("first_ms", milliseconds)
    return milliseconds / 1000


def _refuse_first(ctx: JobContext, result: int) -> int:
    if ctx.attempt == 1:
        raise Refused("the first attempt fails on purpose")
    return result


@cache
def _client() -> redis.Redis:
    return redis.Redis.from_url(settings.KUMIKO["REDIS_URL"])


@cache
def _async_client() -> redis.asyncio.Redis:
    # A worker process has one event loop.
    return redis.asyncio.Redis.from_url(settings.KUMIKO["REDIS_URL"])
