"""What may be a handler, and which ones run on the loop (P10)."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from asgiref.sync import async_to_sync, markcoroutinefunction, sync_to_async

from kumiko_django import DefinitionError, JobDefinition

pytestmark = pytest.mark.once


def plain(payload: Any, ctx: Any) -> None:
    """Do it."""


async def on_loop(payload: Any, ctx: Any) -> None:
    """Do it on the loop."""


def with_more(greeting: str, payload: Any, ctx: Any, *, loud: bool = False) -> None:
    """Greet."""


class Callable:
    """An object that is called."""

    def __call__(self, payload: Any, ctx: Any) -> None: ...

    def method(self, payload: Any, ctx: Any) -> None: ...

    async def async_method(self, payload: Any, ctx: Any) -> None: ...

    @classmethod
    def of_class(cls, payload: Any, ctx: Any) -> None: ...


class AsyncCallable:
    async def __call__(self, payload: Any, ctx: Any) -> None: ...


@functools.wraps(on_loop)
def marked(payload: Any, ctx: Any) -> Any:
    return on_loop(payload, ctx)


markcoroutinefunction(marked)

ON_LOOP = {
    "async def": on_loop,
    "partial of async": functools.partial(on_loop),
    "partial of partial": functools.partial(functools.partial(on_loop)),
    "object with async call": AsyncCallable(),
    "partial of such an object": functools.partial(AsyncCallable()),
    "async method": Callable().async_method,
    "sync_to_async": sync_to_async(plain),
    "marked": marked,
    "AsyncMock": AsyncMock(),
}
IN_THREAD = {
    "def": plain,
    "lambda": lambda payload, ctx: None,
    "any arguments": lambda *args: None,
    "defaults": lambda payload=None, ctx=None: None,
    "partial": functools.partial(with_more, "hello", loud=True),
    "object": Callable(),
    "method": Callable().method,
    "class method": Callable.of_class,
    "async_to_sync": async_to_sync(on_loop),
    "Mock": Mock(),
    "builtin": isinstance,
}


@pytest.mark.parametrize("handler", ON_LOOP.values(), ids=ON_LOOP.keys())
def test_what_gives_a_coroutine_runs_on_the_loop(handler: Any) -> None:
    """In a thread its coroutine would never be awaited, and the run be called completed."""
    assert JobDefinition(handler=handler, name="a", app_label="shop").is_async is True


@pytest.mark.parametrize("handler", IN_THREAD.values(), ids=IN_THREAD.keys())
def test_everything_else_runs_in_a_thread(handler: Any) -> None:
    assert JobDefinition(handler=handler, name="a", app_label="shop").is_async is False


def generator(payload: Any, ctx: Any) -> Iterator[int]:
    yield 1


async def async_generator(payload: Any, ctx: Any) -> AsyncIterator[int]:
    yield 1


class GeneratorCallable:
    def __call__(self, payload: Any, ctx: Any) -> Iterator[int]:
        yield 1


@pytest.mark.parametrize(
    "handler",
    [generator, async_generator, functools.partial(generator), GeneratorCallable()],
    ids=["generator", "async generator", "partial", "object"],
)
def test_a_generator_is_refused(handler: Any) -> None:
    """P10: calling it runs nothing, and nobody would notice."""
    with pytest.raises(DefinitionError, match="generator function; calling it would run nothing"):
        JobDefinition(handler=handler, name="a", app_label="shop")


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (lambda: None, "too many positional arguments"),
        (lambda payload: None, "too many positional arguments"),
        (lambda payload, ctx, more: None, "missing a required argument: 'more'"),
        (lambda payload, *, ctx: None, "too many positional arguments"),
        (lambda payload, ctx, *, more: None, "missing a required.* argument: 'more'"),
        (Callable.method, "missing a required argument"),
        (functools.partial(with_more, "a", "b"), "too many positional arguments"),
        (functools.partial(with_more), "missing a required argument: 'ctx'"),
        (lambda ctx, payload: None, r"in this order; its parameters are \(ctx, payload\)"),
        (len, "too many positional arguments"),
    ],
)
def test_a_wrong_signature_is_refused(handler: Any, message: str) -> None:
    """P10: the first run would tell; it is better told when Django starts."""
    with pytest.raises(DefinitionError, match=message):
        JobDefinition(handler=handler, name="a", app_label="shop")


@dataclass
class Settled:
    payload: Any
    ctx: Any


@pytest.mark.parametrize("handler", [Callable, Settled, functools.partial(Settled)])
def test_a_class_is_refused(handler: Any) -> None:
    """Calling it makes an object, which is dropped."""
    with pytest.raises(DefinitionError, match="the handler is a class"):
        JobDefinition(handler=handler, name="a", app_label="shop")


@pytest.mark.parametrize(
    "handler",
    [lambda payload, ctx: None, functools.partial(plain), Callable()],
    ids=["lambda", "partial", "object"],
)
def test_what_has_no_name_of_its_own_must_be_given_one(handler: Any) -> None:
    """A partial does not take its function's: two partials of one would be one job."""
    with pytest.raises(DefinitionError, match=r"no name of its own.*Give name="):
        JobDefinition(handler=handler, app_label="shop")


@pytest.mark.parametrize(
    ("function_name", "expected"),
    [
        ("send_reminders", "send-reminders"),
        ("sendReminders", "send-reminders"),
        ("SendHTTPRequest", "send-http-request"),
        ("_private", "private"),
        ("import_", "import"),
        ("v2", "v2"),
        ("a__b", "a-b"),
    ],
)
def test_the_name_of_a_function_in_kebab_case(function_name: str, expected: str) -> None:
    """B015."""

    def function(payload: Any, ctx: Any) -> None: ...

    function.__name__ = function_name

    assert JobDefinition(handler=function).name == expected


@pytest.mark.parametrize("function_name", ["größe", "_", "__", "_2"])
def test_a_function_name_that_gives_no_job_name(function_name: str) -> None:
    def function(payload: Any, ctx: Any) -> None: ...

    function.__name__ = function_name

    with pytest.raises(DefinitionError, match=r"Give name='\.\.\.'"):
        JobDefinition(handler=function)


def test_messages_and_descriptions_look_through_partials() -> None:
    definition = JobDefinition(
        handler=functools.partial(with_more, "hello"), name="greet", app_label="shop"
    )

    assert definition.description == "Greet."
    assert definition.module == __name__
    with pytest.raises(DefinitionError, match=rf"job {__name__}\.with_more: lane='x' is unknown"):
        JobDefinition(
            handler=functools.partial(with_more, "hello"),
            name="greet",
            lane="x",  # type: ignore[arg-type]
        )
