"""Jobs of this app. They leave effects as those of ``tests.app.jobs`` do."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from typing import Any

from kumiko_django import JobContext, job
from tests.app.effects import aleave, leave
from tests.integration.worker.extra import FAILING

Payload = dict[str, Any]


@job
def numbered(payload: Payload, ctx: JobContext) -> int:
    """Leave an effect under the job's number, and fail at every tenth."""
    number: int = payload["number"]
    leave(ctx, str(number), ctx.tenant_id)
    if number % FAILING == 0:
        raise ValueError(f"number {number} fails on purpose")
    return number


@job
async def numbered_async(payload: Payload, ctx: JobContext) -> int:
    """Do what ``numbered`` does on the event loop, letting others in between."""
    number: int = payload["number"]
    await aleave(ctx, str(number), ctx.tenant_id)
    await asyncio.sleep(0)
    if number % FAILING == 0:
        raise ValueError(f"number {number} fails on purpose")
    return number


@job
async def stubborn(payload: Payload, ctx: JobContext) -> None:
    """Ignore every cancellation."""
    await aleave(ctx, "begin")
    end = time.monotonic() + payload["seconds"]
    while time.monotonic() < end:
        try:
            await asyncio.sleep(end - time.monotonic())
        except asyncio.CancelledError:
            continue
    await aleave(ctx, "end")


@job
async def waits_for_a_thread(payload: Payload, ctx: JobContext) -> None:
    """Wait for a blocking call in the loop's own pool of threads."""
    await aleave(ctx, "begin")
    await asyncio.to_thread(time.sleep, payload["seconds"])
    await aleave(ctx, "end")


@job
async def lets_go_of_a_thread(payload: Payload, ctx: JobContext) -> str:
    """Give up waiting for a blocking call, which goes on."""
    try:
        async with asyncio.timeout(0.05):
            await asyncio.to_thread(time.sleep, payload["seconds"])
    except TimeoutError:
        return "let go"
    return "waited"


@job
def interrupts(payload: Payload, ctx: JobContext) -> None:
    """Raise KeyboardInterrupt."""
    leave(ctx, "attempt")
    raise KeyboardInterrupt("on purpose")


@job
async def interrupts_async(payload: Payload, ctx: JobContext) -> None:
    """Raise KeyboardInterrupt on the event loop."""
    await aleave(ctx, "attempt")
    raise KeyboardInterrupt("on purpose")


@job
async def exits_async(payload: Payload, ctx: JobContext) -> None:
    """Raise SystemExit on the event loop."""
    await aleave(ctx, "attempt")
    raise SystemExit(3)


@job(per_tenant=True)
def each_tenant(payload: Payload, ctx: JobContext) -> None:
    """Leave an effect (``each-tenant``) with the tenant."""
    leave(ctx, "each-tenant", ctx.tenant_id)


@job(per_tenant=True, spread=dt.timedelta(days=300))
def each_tenant_later(payload: Payload, ctx: JobContext) -> None:
    """Nothing. Of thousands of tenants only the first is due while a test lasts."""
