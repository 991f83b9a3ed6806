"""Every way to dispatch, so that a rule can be proved for all of them at once (user-needs 3)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, cast

from asgiref.sync import async_to_sync
from django.utils import timezone

from kumiko_django import (
    Dispatched,
    JobContext,
    adispatch,
    adispatch_many,
    dispatch,
    dispatch_many,
)
from tests.app.jobs import record

Entry = Callable[..., list[Dispatched]]

PAYLOADS: list[dict[str, Any]] = [{"n": 1}, {"n": 2}, {"n": 3}]
NAME = "testapp:job:record"
# Its methods pass everything on and need nothing of the run.
CONTEXT = cast("JobContext", None)

SYNC_ENTRIES: dict[str, Entry] = {
    "dispatch": lambda **more: [dispatch(record, {"n": 1}, tenant_id="acme", **more)],
    "by name": lambda **more: [dispatch(NAME, {"n": 1}, tenant_id="acme", **more)],
    "by definition": lambda **more: [dispatch(record.definition, tenant_id="acme", **more)],
    "of the job": lambda **more: [record.dispatch({"n": 1}, tenant_id="acme", **more)],
    "delayed": lambda **more: [record.dispatch({}, tenant_id="acme", delay=60, **more)],
    "at a time": lambda **more: [
        record.dispatch({}, tenant_id="acme", run_at=timezone.now() + dt.timedelta(hours=1), **more)
    ],
    "with high priority": lambda **more: [
        record.dispatch({}, tenant_id="acme", priority="high", **more)
    ],
    "with low priority": lambda **more: [
        record.dispatch({}, tenant_id="acme", priority="low", **more)
    ],
    "many": lambda **more: dispatch_many(record, PAYLOADS, tenant_id="acme", **more),
    "many of the job": lambda **more: record.dispatch_many(PAYLOADS, tenant_id="acme", **more),
    "of a context": lambda **more: [
        JobContext.dispatch(CONTEXT, record, {"n": 1}, tenant_id="acme", **more)
    ],
    "many of a context": lambda **more: JobContext.dispatch_many(
        CONTEXT, record, PAYLOADS, tenant_id="acme", **more
    ),
}


def _one(function: Any) -> Entry:
    return lambda **more: [async_to_sync(function)(tenant_id="acme", **more)]


async def _of_the_context(**more: Any) -> Dispatched:
    return await JobContext.adispatch(CONTEXT, record, {"n": 1}, **more)


async def _many_of_the_context(**more: Any) -> list[Dispatched]:
    return await JobContext.adispatch_many(CONTEXT, record, PAYLOADS, **more)


async def _many(**more: Any) -> list[Dispatched]:
    return await adispatch_many(record, PAYLOADS, **more)


async def _by_name(**more: Any) -> Dispatched:
    return await adispatch(NAME, {"n": 1}, **more)


async def _of_the_job(**more: Any) -> Dispatched:
    return await record.adispatch({"n": 1}, **more)


async def _many_of_the_job(**more: Any) -> list[Dispatched]:
    return await record.adispatch_many(PAYLOADS, **more)


ASYNC_ENTRIES: dict[str, Entry] = {
    "async": _one(_by_name),
    "async, of the job": _one(_of_the_job),
    "async, of a context": _one(_of_the_context),
    "async, many": lambda **more: async_to_sync(_many)(tenant_id="acme", **more),
    "async, many of the job": lambda **more: async_to_sync(_many_of_the_job)(
        tenant_id="acme", **more
    ),
    "async, many of a context": lambda **more: async_to_sync(_many_of_the_context)(
        tenant_id="acme", **more
    ),
}

ENTRIES: dict[str, Entry] = {**SYNC_ENTRIES, **ASYNC_ENTRIES}
