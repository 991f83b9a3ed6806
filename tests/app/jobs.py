"""The jobs that tests dispatch. Each does one thing; the payload says how much of it.

Payloads are plain objects whose keys are all optional. A handler that leaves ``Effect`` rows names
their ``key`` in its docstring; with ``{"key": "k"}`` in the payload ``record`` uses that one.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import enum
import os
import signal
import time
import uuid
from typing import Any

from asgiref.sync import sync_to_async
from django.db import transaction
from django.utils import timezone, translation
from pydantic import BaseModel

from kumiko_django import Backoff, JobContext, On, Unrecoverable, dispatch, job
from tests.app import guarded as guarded
from tests.app.effects import aleave, facts, leave, probe, surroundings
from tests.app.models import Effect, Order

Payload = dict[str, Any]


class Refused(Exception):
    """What jobs raise that fail on purpose."""


@job
def record(payload: Payload, ctx: JobContext) -> Any:
    """Leave an effect (``record``) with what the context says; return ``payload["returns"]``."""
    leave(ctx, payload.get("key", "record"), {"payload": payload, "context": facts(ctx)})
    return payload.get("returns")


@job
async def record_async(payload: Payload, ctx: JobContext) -> Any:
    """Do what ``record`` does on the event loop."""
    await aleave(ctx, payload.get("key", "record"), {"payload": payload, "context": facts(ctx)})
    return payload.get("returns")


@job(lane="api")
def api_echo(payload: Payload, ctx: JobContext) -> Payload:
    """Leave an effect (``api-echo``) and return the payload; runs on the api lane."""
    leave(ctx, "api-echo", {"payload": payload, "context": facts(ctx)})
    return payload


@job(tenant="system")
def system_job(payload: Payload, ctx: JobContext) -> None:
    """Leave an effect (``system``) as a job that belongs to no tenant."""
    leave(ctx, "system", {"payload": payload, "context": facts(ctx)})


@job
def sleepy(payload: Payload, ctx: JobContext) -> str:
    """Sleep ``seconds`` between two effects (``begin``, ``end``)."""
    leave(ctx, "begin", payload)
    time.sleep(payload.get("seconds", 1))
    leave(ctx, "end", payload)
    return "slept"


@job
async def sleepy_async(payload: Payload, ctx: JobContext) -> str:
    """Do what ``sleepy`` does without occupying the event loop."""
    await aleave(ctx, "begin", payload)
    await asyncio.sleep(payload.get("seconds", 1))
    await aleave(ctx, "end", payload)
    return "slept"


@job
def quiet(payload: Payload, ctx: JobContext) -> str:
    """Sleep ``seconds`` without touching the database, for tests that take it away."""
    time.sleep(payload.get("seconds", 0))
    return "quiet"


@job
async def quiet_async(payload: Payload, ctx: JobContext) -> str:
    """Do what ``quiet`` does on the event loop."""
    await asyncio.sleep(payload.get("seconds", 0))
    return "quiet"


@job
async def blocks_loop(payload: Payload, ctx: JobContext) -> str:
    """Occupy the event loop for ``seconds`` between two effects, as no async handler should."""
    await aleave(ctx, "begin", payload)
    time.sleep(payload.get("seconds", 1))  # noqa: ASYNC251 - that is the fault on show
    await aleave(ctx, "end", payload)
    return "blocked"


@job
def computes(payload: Payload, ctx: JobContext) -> int:
    """Hold the interpreter's lock for ``seconds`` between two effects."""
    leave(ctx, "begin", payload)
    rounds, end = 0, time.monotonic() + payload.get("seconds", 1)
    while time.monotonic() < end:
        rounds += 1
    leave(ctx, "end", payload)
    return rounds


@job(retries=3, backoff=Backoff.fixed(0.1))
def flaky(payload: Payload, ctx: JobContext) -> int:
    """Fail the first ``fail_times`` attempts; leave an effect (``attempt``) at each."""
    leave(ctx, "attempt", facts(ctx))
    if ctx.attempt <= payload.get("fail_times", 1):
        raise Refused(f"attempt {ctx.attempt} fails on purpose")
    return ctx.attempt


@job(retries=3, backoff=Backoff.fixed(0.1))
async def flaky_async(payload: Payload, ctx: JobContext) -> int:
    """Do what ``flaky`` does on the event loop."""
    await aleave(ctx, "attempt", facts(ctx))
    if ctx.attempt <= payload.get("fail_times", 1):
        raise Refused(f"attempt {ctx.attempt} fails on purpose")
    return ctx.attempt


@job(retries=0)
def always_fails(payload: Payload, ctx: JobContext) -> None:
    """Fail with ``message``."""
    raise Refused(payload.get("message", "fails on purpose"))


@job(retries=3, backoff=Backoff.fixed(0.1))
def unrecoverable(payload: Payload, ctx: JobContext) -> None:
    """Leave an effect (``attempt``) and end all retries."""
    leave(ctx, "attempt", facts(ctx))
    raise Unrecoverable(payload.get("message", "no use in trying again"))


@job
def exits(payload: Payload, ctx: JobContext) -> None:
    """Raise SystemExit, which a handler must not end its worker with."""
    leave(ctx, "attempt", facts(ctx))
    raise SystemExit(payload.get("code", 3))


@job
async def cancel_error(payload: Payload, ctx: JobContext) -> None:
    """Raise CancelledError, as a library does whose own task was cancelled."""
    await aleave(ctx, "attempt", facts(ctx))
    raise asyncio.CancelledError(payload.get("message", "cancelled on purpose"))


@job(retries=3, backoff=Backoff.fixed(0.1))
def kills_itself(payload: Payload, ctx: JobContext) -> str:
    """Kill the worker process (SIGKILL) on the first ``times`` starts, then succeed.

    Effects: ``killed`` before each kill, ``survived`` at the end.
    """
    killed = Effect.objects.filter(job_id=ctx.job_id, key="killed").count()
    if killed < payload.get("times", 1):
        leave(ctx, "killed", facts(ctx))
        os.kill(os.getpid(), signal.SIGKILL)
    leave(ctx, "survived", facts(ctx))
    return "survived"


class Colour(enum.Enum):
    """An enumeration in a payload."""

    RED = "red"
    GREEN = "green"


class TypedPayload(BaseModel):
    """The schema of ``typed``: what JSON does not have."""

    when: dt.datetime
    amount: decimal.Decimal
    reference: uuid.UUID
    colour: Colour = Colour.RED


@job(schema=TypedPayload)
def typed(payload: TypedPayload, ctx: JobContext) -> dict[str, str]:
    """Leave an effect (``typed``): for each field its type's name and its text."""
    seen = {name: [type(value).__name__, str(value)] for name, value in payload}
    leave(ctx, "typed", seen)
    return {"payload": type(payload).__name__}


@job(retries=2, backoff=Backoff.fixed(0.1))
def returns_rubbish(payload: Payload, ctx: JobContext) -> object:
    """Leave an effect (``run``) and return what JSON does not have.

    ``kind``: ``datetime`` (the default), ``object``, ``nan`` or ``huge`` (a text of 2 MB).
    """
    leave(ctx, "run")
    rubbish: dict[str, object] = {
        "datetime": dt.datetime(2026, 3, 29, 2, 30, tzinfo=dt.UTC),
        "object": object(),
        "nan": float("nan"),
        "huge": "x" * 2_000_000,
    }
    return rubbish[payload.get("kind", "datetime")]


@job
def chain(payload: Payload, ctx: JobContext) -> str:
    """Dispatch ``job`` (default ``record``) with ``payload`` through the context.

    The effect (``chained``) holds the id of the dispatched job.
    """
    dispatched = ctx.dispatch(payload.get("job", record), payload.get("payload", {}))
    leave(ctx, "chained", dispatched.job_id)
    return dispatched.job_id


@job
async def chain_async(payload: Payload, ctx: JobContext) -> str:
    """Do what ``chain`` does on the event loop."""
    dispatched = await ctx.adispatch(payload.get("job", record), payload.get("payload", {}))
    await aleave(ctx, "chained", dispatched.job_id)
    return dispatched.job_id


@job
def chain_in_transaction(payload: Payload, ctx: JobContext) -> None:
    """Write an order and dispatch ``find-order`` about it in one transaction.

    With ``rollback`` the transaction fails; the effect (``rolled-back``) is written after it.
    """
    try:
        with transaction.atomic():
            order = Order.objects.create(tenant_id=ctx.tenant_id, number=payload["number"])
            dispatch(find_order, {"number": order.number})
            if payload.get("rollback"):
                raise Refused("rolled back on purpose")  # noqa: TRY301 - it is the block's own
    except Refused:
        leave(ctx, "rolled-back", payload)


@job
def find_order(payload: Payload, ctx: JobContext) -> None:
    """Leave an effect (``order``): whether the order with that ``number`` is there."""
    leave(ctx, "order", Order.objects.filter(number=payload["number"]).exists())


@job
def logs_much(payload: Payload, ctx: JobContext) -> int:
    """Write ``lines`` log lines and report progress as often."""
    lines: int = payload.get("lines", 100)
    for number in range(1, lines + 1):
        ctx.log.info("line", number=number)
        ctx.progress(done=number, total=lines)
        time.sleep(payload.get("pause", 0))
    return lines


@job
def leaks_context(payload: Payload, ctx: JobContext) -> None:
    """Leave thread, context and connection in a mess, then an effect (``leaked``) before it.

    ``leave``: ``atomic`` (the default) leaves a transaction open, ``autocommit`` turns it off.
    """
    leave(ctx, "leaked", surroundings())
    _mess_up()
    if payload.get("leave", "atomic") == "atomic":
        transaction.atomic().__enter__()
    else:
        transaction.set_autocommit(False)
    Order.objects.create(tenant_id=str(ctx.tenant_id), number="never committed")


@job
async def leaks_context_async(payload: Payload, ctx: JobContext) -> None:
    """Do what ``leaks-context`` does, in the context of the event loop and of its thread."""
    await aleave(ctx, "leaked", surroundings())
    _mess_up()
    await sync_to_async(transaction.atomic().__enter__)()
    await Order.objects.acreate(tenant_id=str(ctx.tenant_id), number="never committed")


@job
def reads_context(payload: Payload, ctx: JobContext) -> None:
    """Leave an effect (``read``) with what is to be seen of other runs."""
    leave(ctx, "read", surroundings())


@job
async def reads_context_async(payload: Payload, ctx: JobContext) -> None:
    """Do what ``reads-context`` does, on the event loop (``read``) and in its thread."""
    await aleave(ctx, "read", surroundings())
    await aleave(ctx, "read", await sync_to_async(surroundings)())


@job(trigger=On("order.placed", "order.changed", where={"country": "DE"}))
def hears_order(payload: Payload, ctx: JobContext) -> None:
    """Leave an effect (``heard``) about an event that has started it."""
    event = ctx.trigger_event
    value = {
        "payload": payload,
        "name": ctx.trigger_name,
        "event": None if event is None else {"id": event.id, "headers": dict(event.headers)},
        "user": None if ctx.triggered_by is None else ctx.triggered_by.id,
        "correlation": ctx.correlation_id,
    }
    leave(ctx, "heard", value)


@job(trigger=On("order.placed"), lane="api")
async def hears_order_too(payload: Payload, ctx: JobContext) -> None:
    """Leave an effect (``heard-too``) with the event's name; runs on the api lane."""
    await aleave(ctx, "heard-too", ctx.trigger_name)


def _mess_up() -> None:
    translation.activate("fr")
    timezone.activate("Asia/Tokyo")
    probe.set("leaked")


@job
def dies_deferred(payload: Payload, ctx: JobContext) -> Any:
    """Defer, kill the worker (SIGKILL) when it goes on, defer again, and succeed.

    Effects: ``call`` at each.
    """
    calls = Effect.objects.filter(job_id=ctx.job_id, key="call").count()
    leave(ctx, "call", facts(ctx))
    if calls == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "done" if calls == 3 else ctx.defer(payload.get("seconds", 0.2))


@job(timeout=0.2, retries=1, backoff=Backoff.fixed(0.1))
def hangs_once(payload: Payload, ctx: JobContext) -> str:
    """Hang in C for ``seconds`` at the first attempt, where no exception reaches it."""
    leave(ctx, "begin")
    if ctx.attempt == 1:
        time.sleep(payload.get("seconds", 60))
    return "done"
