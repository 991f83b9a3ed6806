"""Functions, scopes and definitions of ``kumiko_django``, as type checkers see them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Coroutine
from typing import Any, assert_type
from uuid import UUID

from django.dispatch import Signal

import kumiko_django
from kumiko_django import (
    SYSTEM,
    Dispatched,
    JobDefinition,
    adispatch,
    adispatch_many,
    aemit,
    bind_signal,
    current_tenant_id,
    dispatch,
    dispatch_many,
    emit,
    job,
    query_handler,
    registry,
    system_scope,
    tenant_scope,
    write_handler,
)
from kumiko_django.handlers import HandlerContext, awrite, query, system_user, write
from kumiko_django.types.jsonable import JSON


@job
def send(payload: Any, ctx: Any) -> None: ...


async def dispatching() -> None:
    assert_type(dispatch(send), Dispatched)
    assert_type(dispatch("shop:job:send", {"a": 1}, tenant_id="acme"), Dispatched)
    assert_type(dispatch(send.definition, delay=dt.timedelta(seconds=5)), Dispatched)
    assert_type(dispatch_many(send, [{}]), list[Dispatched])
    pending: Coroutine[Any, Any, Dispatched] = adispatch(send)
    assert_type(await pending, Dispatched)
    assert_type(await adispatch(send, run_at=dt.datetime.now(dt.UTC)), Dispatched)
    assert_type(await adispatch_many(send, [{}]), list[Dispatched])
    assert_type(kumiko_django.dispatch(send), Dispatched)
    dispatch(send, payload={}, tenant="acme")  # type: ignore[call-arg]
    dispatch(send, {}, delay="5")  # type: ignore[arg-type]


async def events() -> None:
    assert_type(emit("order.placed"), list[Dispatched])
    more: list[Dispatched] = await aemit(
        "order.placed",
        {"n": 1},
        event_id=UUID(int=1),
        headers={"a": 1, "b": True},
        tenant_id="acme",
        triggered_by=5,
        using="second",
    )
    assert more[0].status in ("queued", "failed")
    emit("order.placed", [1])  # type: ignore[arg-type]
    emit("order.placed", event_id=1.5)  # type: ignore[arg-type]
    emit("order.placed", headers={"a": None})  # type: ignore[dict-item]
    bind_signal(Signal(), "order.placed").disconnect()
    bind_signal(Signal(), "order.placed", sender=int, payload=dict, when=lambda n: n > 1)
    bind_signal("order.placed", Signal())  # type: ignore[arg-type]
    bind_signal(Signal(), "order.placed", when=True)  # type: ignore[arg-type]


def definitions() -> None:
    assert_type(registry.get("shop:job:send"), JobDefinition)
    assert_type(registry.all(), tuple[JobDefinition, ...])
    assert_type(registry.register(JobDefinition(handler=send, name="by-hand")), JobDefinition)
    assert_type(send.definition.qualified_name, str)
    assert_type(send.definition.is_async, bool)
    JobDefinition(handler=send, aliases=["old"])
    send.definition.lane = "api"  # type: ignore[misc]


@tenant_scope("acme")
def in_scope(number: int) -> str:
    return str(number)


@system_scope("nightly")
async def in_scope_async(number: int) -> str:
    return str(number)


async def scopes() -> None:
    assert_type(in_scope(5), str)
    assert_type(await in_scope_async(5), str)
    in_scope("5")  # type: ignore[arg-type]
    with tenant_scope(5) as scope:
        assert_type(scope.tenant_id, str)
    async with system_scope("why"), tenant_scope(UUID(int=1)):
        pass
    assert_type(current_tenant_id(), str | None)
    tenant_scope(None)  # type: ignore[arg-type]
    text: str = SYSTEM
    text.upper()


@write_handler("create-order", roles=["staff"])
def create_order(payload: dict[str, Any], ctx: HandlerContext) -> int:
    return len(payload) + len(ctx.user.roles)


@query_handler(roles={"staff"})
async def orders(payload: dict[str, Any], ctx: HandlerContext) -> str:
    return ctx.tenant_id


@write_handler()  # roles are missed when it runs: there is no type for "not empty"
def nobody(payload: Any, ctx: Any) -> None: ...


@query_handler("orders", using="default")  # type: ignore[call-arg]
def has_no_transaction(payload: Any, ctx: Any) -> None: ...


async def handlers_are_called(ctx: HandlerContext) -> None:
    assert_type(create_order({}, ctx), int)
    assert_type(write("shop:write:create-order", {}, user=7, event_id="e"), JSON)
    assert_type(await awrite("shop:write:create-order", user=system_user("why")), JSON)
    assert_type(query("shop:query:orders"), JSON)
    pending: Coroutine[Any, Any, str] = orders({}, ctx)
    pending.close()


async def handlers_are_called_by_jobs(ctx: kumiko_django.JobContext) -> None:
    assert_type(ctx.write("shop:write:create-order", event_id=ctx.job_id), JSON)
    assert_type(await ctx.awrite_as(7, "shop:write:create-order", {}), JSON)
    assert_type(ctx.query_as(7, "shop:query:orders"), JSON)
    assert_type(await ctx.aquery_as_member(ctx.triggered_by, "shop:query:orders"), JSON)
