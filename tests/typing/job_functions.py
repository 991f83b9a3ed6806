"""``@job`` keeps the types of a function and gives it typed ways to dispatch."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, assert_type

from kumiko_django import SYSTEM, Backoff, Dispatched, JobContext, JobDefinition, Manual, On, job
from kumiko_django.definitions.decorator import Job


@dataclass
class Reminder:
    limit: int


@job
def plain(payload: dict[str, Any], ctx: JobContext) -> int:
    return len(payload)


@job(
    name="typed",
    app_label="shop",
    trigger=Manual(),
    lane="api",
    tenant="system",
    retries=3,
    backoff=Backoff.exponential(dt.timedelta(seconds=2), jitter=0.2, max_seconds=60),
    priority="high",
    schema=Reminder,
    aliases=["old"],
    run_on_boot=True,
    boot_gate="one-at-a-time",
    escape_hatches={"system_identity": "writes in the name of users"},
    description="Sends reminders.",
)
def typed(payload: Reminder, ctx: JobContext) -> str:
    return str(payload.limit)


@job(trigger=On("order.placed", ["order.changed"], where={"country": "DE"}))
def on_event(payload: dict[str, Any], ctx: JobContext) -> None: ...


@job(per_tenant=True, spread=dt.timedelta(hours=1))
def for_everyone(payload: dict[str, Any], ctx: JobContext) -> None: ...


@job(per_tenant=True, spread="1h")  # type: ignore[call-overload, untyped-decorator]
def wrong_spread(payload: Any, ctx: Any) -> None: ...


@job(priority=1000)
async def on_loop(payload: dict[str, Any], ctx: JobContext) -> None: ...


@job(priority="urgent")  # type: ignore[call-overload, untyped-decorator]
def wrong_priority(payload: Any, ctx: Any) -> None: ...


@job(lane="both")  # type: ignore[call-overload, untyped-decorator]
def wrong_lane(payload: Any, ctx: Any) -> None: ...


@job(boot_gate="once")  # type: ignore[call-overload, untyped-decorator]
def wrong_gate(payload: Any, ctx: Any) -> None: ...


@job(escape_hatches={"root": "why not"})  # type: ignore[dict-item]
def wrong_grant(payload: Any, ctx: Any) -> None: ...


@job(time_out=5)  # type: ignore[call-overload, untyped-decorator]
def unknown_option(payload: Any, ctx: Any) -> None: ...


def the_function_stays_callable_as_it_was(ctx: JobContext) -> None:
    assert_type(plain({}, ctx), int)
    assert_type(plain(payload={}, ctx=ctx), int)
    assert_type(typed(Reminder(5), ctx), str)
    pending: Coroutine[Any, Any, None] = on_loop({}, ctx)
    pending.close()
    assert_type(plain.definition, JobDefinition)
    assert_type(plain.__name__, str)
    typed({}, ctx)  # type: ignore[arg-type]
    plain({})  # type: ignore[call-arg]
    as_callable: Callable[[dict[str, Any], JobContext], int] = plain
    as_callable({}, ctx)
    as_job: Job[[dict[str, Any], JobContext], int] = plain
    assert_type(as_job({}, ctx), int)


def it_is_dispatched() -> None:
    assert_type(plain.dispatch(), Dispatched)
    assert_type(plain.dispatch({"limit": 5}, tenant_id="acme"), Dispatched)
    assert_type(typed.dispatch(Reminder(5)), Dispatched)
    assert_type(
        plain.dispatch(
            {},
            tenant_id=uuid.uuid4(),
            triggered_by=5,
            priority="low",
            delay=dt.timedelta(minutes=5),
            using="second",
            immediate=True,
        ),
        Dispatched,
    )
    plain.dispatch(tenant_id=5, priority=7, delay=1.5)
    plain.dispatch(tenant_id=None, run_at=dt.datetime.now(dt.UTC))
    plain.dispatch(tenant_id=SYSTEM)
    assert_type(plain.dispatch().job_id, str)
    assert_type(plain.dispatch_many([{}, {}], tenant_id="acme"), list[Dispatched])
    assert_type(plain.dispatch_many({} for _ in range(3)), list[Dispatched])


async def it_is_dispatched_from_async_code() -> None:
    pending: Coroutine[Any, Any, Dispatched] = plain.adispatch({})
    assert_type(await pending, Dispatched)
    assert_type(await plain.adispatch({}, delay=5), Dispatched)
    assert_type(await on_loop.adispatch_many([{}]), list[Dispatched])


def what_is_wrong_is_told() -> None:
    plain.dispatch(tenant="acme")  # type: ignore[call-arg]
    plain.dispatch({}, "acme")  # type: ignore[call-arg]
    plain.dispatch(tenant_id=1.5)  # type: ignore[arg-type]
    plain.dispatch(priority="urgent")  # type: ignore[arg-type]
    plain.dispatch(delay="5")  # type: ignore[arg-type]
    plain.dispatch(run_at=5)  # type: ignore[arg-type]
    plain.dispatch_many()  # type: ignore[call-arg]
    plain.dispatch_many(5)  # type: ignore[arg-type]
    plain.dispatch().status = "queued"  # type: ignore[misc]
    plain.emit()  # type: ignore[attr-defined]
    On(5)  # type: ignore[arg-type]
    On("a", where="b")  # type: ignore[arg-type]
    Backoff.fixed("5")  # type: ignore[arg-type]
    JobDefinition(handler=len, lane="both")  # type: ignore[arg-type]
