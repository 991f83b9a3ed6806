"""Waiting for something to become true, instead of sleeping and hoping."""

from __future__ import annotations

import asyncio
import inspect
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")

witnesses: list[Callable[[], str]] = []
"""Asked what they see when a wait was in vain. It is printed; pytest shows it with the failure."""


def wait_until(
    predicate: Callable[[], T],
    *,
    description: str,
    timeout: float = 10.0,
    interval: float = 0.02,
) -> T:
    """Call ``predicate`` until it returns something truthy, and return that.

    An exception of the predicate is not swallowed. The predicate is always asked at least once,
    and once more when the time is over, so that a slow machine gets a fair answer.

    Args:
        predicate: What is asked again and again.
        description: What the test waits for, e.g. ``"the run is on record"``.
        timeout: Seconds until the wait fails.
        interval: Seconds between two calls.

    Raises:
        AssertionError: With the description and the predicate's last value.
    """
    deadline = time.monotonic() + timeout
    while True:
        late = time.monotonic() >= deadline
        value = predicate()
        if value:
            return value
        if late:
            raise AssertionError(_complaint(description, timeout, value))
        time.sleep(interval)


@overload
async def await_until(
    predicate: Callable[[], Awaitable[T]],
    *,
    description: str,
    timeout: float = ...,  # noqa: ASYNC109 - as below
    interval: float = ...,
) -> T: ...
@overload
async def await_until(
    predicate: Callable[[], T],
    *,
    description: str,
    timeout: float = ...,  # noqa: ASYNC109 - as below
    interval: float = ...,
) -> T: ...
async def await_until(
    predicate: Callable[[], Any],
    *,
    description: str,
    timeout: float = 10.0,  # noqa: ASYNC109 - the caller names the time, as in wait_until
    interval: float = 0.02,
) -> Any:
    """Do what ``wait_until`` does, without blocking the event loop.

    The predicate may be a coroutine function, or return an awaitable:
    ``await await_until(lambda: Effect.objects.filter(key="a").aexists(), description="...")``.
    """
    deadline = time.monotonic() + timeout
    while True:
        late = time.monotonic() >= deadline
        answer = predicate()
        value = await answer if inspect.isawaitable(answer) else answer
        if value:
            return value
        if late:
            raise AssertionError(_complaint(description, timeout, value))
        await asyncio.sleep(interval)


def _complaint(description: str, timeout: float, value: object) -> str:
    for witness in list(witnesses):
        print(witness(), file=sys.stderr)  # noqa: T201
    return f"waited {timeout:g} s in vain until {description}; the last value was {value!r}"
