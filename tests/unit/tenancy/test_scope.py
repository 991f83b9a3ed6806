"""``tenant_scope`` and ``system_scope``: nesting, errors, decorators, ids (P106, user-needs 24)."""

from __future__ import annotations

import asyncio
import enum
import functools
import inspect
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.utils.safestring import mark_safe
from pytest_django import Settings

from kumiko_django import SYSTEM, ScopeError, current_tenant_id, system_scope, tenant_scope
from kumiko_django.tenancy.scope import clean_tenant_id, run_scope
from kumiko_django.types import ambient

pytestmark = pytest.mark.once


@pytest.fixture
def tenancy_off(settings: Settings) -> None:
    settings.KUMIKO = {**settings.KUMIKO, "TENANTS": None}


def now() -> str | None:
    """The tenant in scope, by the function that is public."""
    return current_tenant_id()


# ---------------------------------------------------------------------------- current_tenant_id


def test_outside_of_any_scope_there_is_no_tenant() -> None:
    assert current_tenant_id() is None


def test_in_a_tenants_scope_it_is_that_tenant() -> None:
    with tenant_scope("acme") as scope:
        assert current_tenant_id() == "acme"
        assert scope == ambient.Scope("acme", "tenant")
    assert current_tenant_id() is None


def test_in_a_system_scope_it_is_system() -> None:
    with system_scope("  nightly clean-up ") as scope:
        assert current_tenant_id() == SYSTEM
        assert scope == ambient.Scope(SYSTEM, "system", "nightly clean-up")
    assert current_tenant_id() is None


def test_without_tenancy_it_is_always_system(tenancy_off: None) -> None:
    assert current_tenant_id() == SYSTEM
    with system_scope("clean-up"):
        assert current_tenant_id() == SYSTEM


async def test_a_tenants_scope_without_tenancy_is_refused(tenancy_off: None) -> None:
    """All work would go on for SYSTEM, while the code says that it is for one tenant."""
    scope = tenant_scope("acme")
    message = r"tenant_scope\('acme'\) is entered, but tenancy is off.*KUMIKO\[\"TENANTS\"\]"

    with pytest.raises(ScopeError, match=message), scope:
        pass
    with pytest.raises(ScopeError, match=message):
        async with scope:
            pass
    with pytest.raises(ScopeError, match=message):
        scope(now)()
    assert ambient.scope.get() is None


# ------------------------------------------------------------------------------------- nesting


def test_scopes_nest_and_each_puts_back_what_was_outside() -> None:
    seen = [now()]
    with tenant_scope("a"):
        seen.append(now())
        with tenant_scope("b"):
            seen.append(now())
            with system_scope("because"):
                seen.append(now())
                with tenant_scope("a"):
                    seen.append(now())
                seen.append(now())
            seen.append(now())
        seen.append(now())
    seen.append(now())

    assert seen == [None, "a", "b", SYSTEM, "a", SYSTEM, "b", "a", None]


@pytest.mark.parametrize(
    "error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError]
)
def test_an_error_inside_leaves_the_scope_and_passes(error: type[BaseException]) -> None:
    def fail() -> None:
        with tenant_scope("b"):
            raise error

    with tenant_scope("a"):
        with pytest.raises(error):
            fail()
        assert now() == "a"


def test_one_block_may_be_entered_again_and_inside_itself() -> None:
    block = tenant_scope("a")

    for _ in range(2):
        with block, tenant_scope("b"), block:
            assert now() == "a"
        with block:
            with block:
                pass
            assert now() == "a"
    assert now() is None


async def test_it_is_an_async_context_manager_too() -> None:
    async with tenant_scope("a") as scope:
        await asyncio.sleep(0)
        assert (now(), scope.mode) == ("a", "tenant")
        async with system_scope("because"):
            assert now() == SYSTEM
        assert now() == "a"
    assert now() is None


def test_blocks_that_are_left_in_the_wrong_order_say_so() -> None:
    """With a token of a ContextVar the outer tenant would be in scope again, or a third one."""
    outer, inner = tenant_scope("a"), tenant_scope("b")
    outer.__enter__()
    inner.__enter__()

    with pytest.raises(ScopeError, match=r"tenant_scope\('a'\) is left where it is not the inner"):
        outer.__exit__(None, None, None)
    assert now() == "b"

    inner.__exit__(None, None, None)
    outer.__exit__(None, None, None)
    assert now() is None


@pytest.mark.parametrize("block", [tenant_scope("a"), system_scope("because")])
def test_a_block_that_was_not_entered_cannot_be_left(block: Any) -> None:
    with pytest.raises(ScopeError, match="is left where it is not the innermost scope"):
        block.__exit__(None, None, None)


# ----------------------------------------------------------------------------------- decorators


def add(first: int, second: int = 2, *, tenants: list[Any]) -> int:
    """Add."""
    tenants.append(now())
    return first + second


async def add_async(first: int, second: int = 2, *, tenants: list[Any]) -> int:
    """Add."""
    await asyncio.sleep(0)
    tenants.append(now())
    return first + second


class Adder:
    """Objects and methods that are called."""

    def __call__(self, first: int, second: int = 2, *, tenants: list[Any]) -> int:
        return add(first, second, tenants=tenants)

    @tenant_scope("a")
    def method(self, first: int, *, tenants: list[Any]) -> int:
        return add(first, tenants=tenants)


class AsyncAdder:
    async def __call__(self, first: int, second: int = 2, *, tenants: list[Any]) -> int:
        return await add_async(first, second, tenants=tenants)


def hidden_async(first: int, second: int = 2, *, tenants: list[Any]) -> Any:
    """Give a coroutine without saying so, as a wrapper does."""
    return add_async(first, second, tenants=tenants)


@pytest.mark.parametrize("function", [add, Adder(), functools.partial(add, second=2)])
def test_a_function_runs_in_the_scope(function: Callable[..., int]) -> None:
    tenants: list[Any] = []
    decorated = tenant_scope("a")(function)

    assert decorated(1, tenants=tenants) == 3
    assert tenants == ["a"]
    assert now() is None


@pytest.mark.parametrize(
    "function",
    [
        add_async,
        AsyncAdder(),
        functools.partial(add_async, second=2),
        hidden_async,
        sync_to_async(add),
    ],
)
async def test_an_async_function_runs_in_the_scope(function: Callable[..., Any]) -> None:
    """Its body runs when it is awaited, not when it is called."""
    tenants: list[Any] = []
    decorated = tenant_scope("a")(function)

    coroutine = decorated(1, tenants=tenants)
    assert now() is None
    assert await coroutine == 3
    assert tenants == ["a"]
    assert now() is None


def test_a_decorated_function_stays_what_it_was() -> None:
    decorated, decorated_async = tenant_scope("a")(add), tenant_scope("a")(add_async)

    assert (decorated.__name__, decorated.__doc__) == ("add", "Add.")
    assert inspect.signature(decorated) == inspect.signature(add)
    assert inspect.iscoroutinefunction(decorated_async)
    assert not inspect.iscoroutinefunction(decorated)


def test_a_method_may_be_decorated() -> None:
    tenants: list[Any] = []

    assert Adder().method(1, tenants=tenants) == 3
    assert tenants == ["a"]


def test_a_decorated_function_that_fails_leaves_the_scope() -> None:
    @system_scope("because")
    def fail() -> None:
        raise ZeroDivisionError(now())

    with pytest.raises(ZeroDivisionError, match=SYSTEM):
        fail()
    assert now() is None


def test_decorators_nest_and_recurse() -> None:
    @tenant_scope("a")
    def countdown(number: int) -> list[str | None]:
        if number == 0:
            return [now()]
        with tenant_scope("b"):
            return [now(), *countdown(number - 1), now()]

    assert countdown(2) == ["b", "b", "a", "b", "b"]
    assert now() is None


def generate() -> Iterator[int]:
    yield 1


async def generate_async() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    "function", [generate, generate_async, functools.partial(generate)], ids=str
)
def test_a_generator_is_refused(function: Any) -> None:
    """Its body would run where it is iterated, outside of the scope."""
    with pytest.raises(ScopeError, match=r"generate\w* is a generator: its body would run outside"):
        tenant_scope("a")(function)


@pytest.mark.parametrize("function", [lambda: generate(), lambda: generate_async()])
def test_a_generator_that_is_returned_is_refused_too(function: Any) -> None:
    with pytest.raises(ScopeError, match="is a generator: its body would run outside the scope"):
        tenant_scope("a")(function)()
    assert now() is None


def test_a_class_is_refused() -> None:
    with pytest.raises(ScopeError, match="Adder is a class; put the scope around its methods"):
        tenant_scope("a")(Adder)


# ------------------------------------------------------------------------------------------ ids


class Plain(str, enum.Enum):  # noqa: UP042  (the kind whose text is "Plain.ACME")
    ACME = "acme"


class Number(int, enum.Enum):
    FIVE = 5


ID = uuid.uuid4()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("acme", "acme"),
        ("Größe GmbH & Co", "Größe GmbH & Co"),
        (5, "5"),
        (-5, "-5"),
        (0, "0"),
        (2**63, str(2**63)),
        (ID, str(ID)),
        (str(ID).upper(), str(ID).upper()),
        ("x" * 128, "x" * 128),
        (Plain.ACME, "acme"),
        (Number.FIVE, "5"),
        (mark_safe("acme"), "acme"),
        (SYSTEM, SYSTEM),
        (uuid.UUID(SYSTEM), SYSTEM),
    ],
)
def test_a_tenant_id_becomes_text(value: Any, text: str) -> None:
    """The text of an enumeration's member would be another tenant's id: 'Plain.ACME'."""
    cleaned = clean_tenant_id(value)

    assert cleaned == text
    assert type(cleaned) is str


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "text, a whole number or a UUID, not None"),
        (True, "not True"),
        (1.5, "not 1.5"),
        (b"acme", "not b'acme'"),
        (["acme"], r"not \['acme'\]"),
        (object(), "Give the tenant's key, not the tenant"),
        ("", "is empty"),
        (" ", "space at an end"),
        ("acme ", "space at an end"),
        ("\tacme", "space at an end"),
        ("acme\n", "space at an end, or control"),
        ("ac\x00me", "control characters"),
        ("ac\x1bme", "control characters"),
        ("ac\u200bme", "control characters"),
        ("\ud800", "control characters"),
        ("x" * 129, "longer than 128 characters"),
        (10**128, "longer than 128 characters"),
        pytest.param(10**5000, "longer than 128 characters", id="5001 digits"),
    ],
)
def test_an_unusable_tenant_id_is_refused(value: Any, message: str) -> None:
    for use in (clean_tenant_id, tenant_scope):
        with pytest.raises(ScopeError, match=message):
            use(value)


@pytest.mark.parametrize("value", [SYSTEM, uuid.UUID(SYSTEM)])
def test_system_is_no_tenant(value: Any) -> None:
    """P68: it is said with a reason, or not at all."""
    with pytest.raises(ScopeError, match=r"Use system_scope\('why'\)"):
        tenant_scope(value)


@pytest.mark.parametrize("reason", ["", "  ", None, 5, True, ["why"]])
def test_a_system_scope_needs_a_reason(reason: Any) -> None:
    with pytest.raises(ScopeError, match="system_scope needs a reason"):
        system_scope(reason)


def test_a_block_shows_what_it_is() -> None:
    assert repr(tenant_scope(5)) == "tenant_scope('5')"
    assert repr(system_scope("nightly")) == "system_scope('nightly')"


def test_the_scope_of_a_run() -> None:
    assert run_scope("acme") == ambient.Scope("acme", "tenant")
    assert run_scope(SYSTEM).mode == "system"
    assert run_scope(SYSTEM).reason
