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
    registry,
    system_scope,
    tenant_scope,
)


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
