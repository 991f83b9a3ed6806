"""Jobs with modes and caps, for tests that dispatch or run them in processes of their own."""

from __future__ import annotations

import os
import time
from typing import Any

import redis
from django.conf import settings

from kumiko_django import Backoff, JobContext, job
from tests.app.effects import leave

Payload = dict[str, Any]
CAP = 7
NOTED_CAP = 3


@job(concurrency="skip")
def guarded_skip(payload: Payload, ctx: JobContext) -> None:
    """Leave an effect (``ran``) with the payload."""
    leave(ctx, "ran", payload)


@job(max_per_tenant=CAP)
def guarded_cap(payload: Payload, ctx: JobContext) -> None:
    """Leave an effect (``ran``) with the payload."""
    leave(ctx, "ran", payload)


@job(concurrency="replace")
def guarded_replace(payload: Payload, ctx: JobContext) -> None:
    """Leave an effect (``ran``) with the payload."""
    leave(ctx, "ran", payload)


@job(concurrency="debounce", debounce=4)
def guarded_debounce(payload: Payload, ctx: JobContext) -> None:
    """Leave an effect (``ran``) with the payload."""
    leave(ctx, "ran", payload)


@job(concurrency="throttle", throttle=60)
def guarded_throttle(payload: Payload, ctx: JobContext) -> None:
    """Leave an effect (``ran``) with the payload."""
    leave(ctx, "ran", payload)


def note(*facts: object) -> None:
    """Add a line to the one list of a test, whose order is Redis' own."""
    kumiko = settings.KUMIKO
    with redis.Redis.from_url(kumiko["REDIS_URL"], socket_timeout=30) as client:
        client.rpush(f"{kumiko['QUEUE_PREFIX']}:noted", " ".join(map(str, facts)))


def _works(payload: Payload, ctx: JobContext) -> None:
    note("begin", ctx.job_id, os.getpid(), ctx.fencing_token)
    time.sleep(payload.get("seconds", 0))
    note("end", ctx.job_id, os.getpid())
    if ctx.attempt <= payload.get("fails", 0):
        raise ValueError("on purpose")


@job(concurrency="sequential", retries=2, backoff=Backoff.fixed(0.1))
def noted_sequence(payload: Payload, ctx: JobContext) -> None:
    """Note beginning and end; take ``seconds``, fail ``fails`` times."""
    _works(payload, ctx)


@job(max_per_tenant=NOTED_CAP, retries=2, backoff=Backoff.fixed(0.1))
def noted_cap(payload: Payload, ctx: JobContext) -> None:
    """Note beginning and end; take ``seconds``, fail ``fails`` times."""
    _works(payload, ctx)
