"""What is ambient is set for a block and put back exactly (B134, P106)."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
from typing import Any

import pytest

from kumiko_django.types import ambient
from kumiko_django.types.ambient import RunIds, Scope, TraceContext
from kumiko_django.types.ids import uuid7
from kumiko_django.types.origin import WriteOrigin

pytestmark = pytest.mark.once

VALUES: dict[contextvars.ContextVar[Any], Any] = {
    ambient.scope: Scope("acme", "tenant"),
    ambient.user_id: "7",
    ambient.request_id: "request",
    ambient.correlation_id: "chain",
    ambient.write_origin: WriteOrigin("anonymous"),
    ambient.trace: TraceContext("trace", "span"),
    ambient.accepts_personal_data: "people register themselves",
    ambient.view_name: str,
    ambient.handler: "shop:job:send",
    ambient.feature: "shop",
    ambient.run: RunIds(uuid7(), "job"),
}


def now() -> dict[Any, Any]:
    return {variable: variable.get() for variable in VALUES}


def test_every_ambient_variable_is_in_this_test() -> None:
    declared = {
        value for value in vars(ambient).values() if isinstance(value, contextvars.ContextVar)
    }

    assert declared == set(VALUES)


def test_outside_of_everything_nothing_is_ambient() -> None:
    assert set(now().values()) == {None}


def test_a_block_sets_them_and_puts_them_back() -> None:
    with ambient.entered(VALUES):
        assert now() == VALUES
        with ambient.entered({ambient.user_id: None, ambient.request_id: "inner"}):
            assert now() == {**VALUES, ambient.user_id: None, ambient.request_id: "inner"}
        assert now() == VALUES
        with ambient.entered({}):
            assert now() == VALUES
    assert set(now().values()) == {None}


@pytest.mark.parametrize(
    "error", [ValueError, SystemExit, KeyboardInterrupt, asyncio.CancelledError, StopIteration]
)
def test_they_are_put_back_after_an_error(error: type[BaseException]) -> None:
    def fail() -> None:
        with ambient.entered(VALUES):
            raise error

    with ambient.entered({ambient.user_id: "outside"}):
        with pytest.raises((error, RuntimeError)):
            fail()
        assert now() == {**dict.fromkeys(VALUES), ambient.user_id: "outside"}


def test_they_are_put_back_whatever_was_set_inside() -> None:
    """A handler may leave anything behind; the next run must not see it."""
    with ambient.entered({ambient.user_id: "outside"}):
        with ambient.entered(VALUES):
            for variable in VALUES:
                variable.set("left behind")
        assert now() == {**dict.fromkeys(VALUES), ambient.user_id: "outside"}


async def test_tasks_do_not_see_one_another() -> None:
    """P106: a hundred runs at once, each with values of its own, also after waiting."""
    barrier = asyncio.Barrier(100)

    async def run(number: int) -> bool:
        values = {variable: f"{variable.name} {number}" for variable in VALUES}
        with ambient.entered(values):
            async with barrier:
                pass
            inside = now() == values
        return inside and set(now().values()) == {None}

    assert all(await asyncio.gather(*(run(number) for number in range(100))))


@pytest.mark.parametrize("value", [Scope("a", "tenant"), TraceContext("a", "b")])
def test_values_are_frozen(value: Any) -> None:
    for field in dataclasses.fields(value):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, field.name, "other")
