"""Functions, scopes and definitions of ``kumiko_django``, as type checkers see them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Coroutine
from typing import Any, assert_type
from uuid import UUID

import kumiko_django
from kumiko_django import (
    SYSTEM,
    Dispatched,
    JobDefinition,
    adispatch,
    adispatch_many,
    current_tenant_id,
    dispatch,
    dispatch_many,
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
