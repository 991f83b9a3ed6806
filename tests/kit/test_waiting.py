"""The kit waits without sleeping too long, and says what it has waited for."""

from __future__ import annotations

import time

import pytest

from tests.helpers.waiting import await_until, wait_until

pytestmark = pytest.mark.once


def test_the_truthy_value_is_returned() -> None:
    answers = iter([None, "", "here"])
    assert wait_until(lambda: next(answers), description="it is here", interval=0) == "here"


def test_a_wait_in_vain_tells_the_description_and_the_last_value() -> None:
    with pytest.raises(AssertionError, match=r"until the cow is home; the last value was \['moo'"):
        wait_until(lambda: ["moo"] and Falsy(["moo"]), description="the cow is home", timeout=0.05)


def test_a_predicate_slower_than_the_timeout_is_still_asked_at_the_end() -> None:
    calls = []

    def slow() -> bool:
        calls.append(time.monotonic())
        time.sleep(0.1)
        return len(calls) > 1

    assert wait_until(slow, description="the second call", timeout=0.05)


def test_an_exception_of_the_predicate_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        wait_until(lambda: 1 / 0, description="never")


async def test_the_async_twin_takes_plain_and_async_predicates() -> None:
    async def here() -> str:
        return "async"

    assert await await_until(here, description="async") == "async"
    assert await await_until(lambda: "plain", description="plain") == "plain"
    with pytest.raises(AssertionError, match="until nothing; the last value was 0"):
        await await_until(lambda: 0, description="nothing", timeout=0.05)


class Falsy(list[str]):
    """A value that is false and yet has something to show."""

    def __bool__(self) -> bool:
        return False
