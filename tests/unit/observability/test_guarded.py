"""What a meter or a tracer raises changes nothing, and is told once (B210, P24)."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from kumiko_django.observability import names
from kumiko_django.observability.guarded import GuardedMeter, GuardedTracer
from kumiko_django.observability.memory import InMemoryMeter
from kumiko_django.types.trace import TraceParent

pytestmark = pytest.mark.once


class BrokenMeter:
    """Raises whatever it is asked."""

    def _raise(self, *args: Any, **labels: str) -> None:
        raise OSError("collector away")

    count = gauge = observe = _raise


class BrokenSpan:
    """Raises whatever it is asked, once it has begun."""

    @property
    def context(self) -> Any:
        raise OSError("context")

    def set_attribute(self, *arguments: Any) -> None:
        raise OSError("attribute")

    fail = set_attribute


class BrokenTracer:
    """Raises at one of its steps."""

    def __init__(self, step: str) -> None:
        self.step = step

    def span(self, name: str, **options: Any) -> Any:
        if self.step == "span":
            raise OSError("span")
        return self._block()

    @contextmanager
    def _block(self) -> Any:
        if self.step == "enter":
            raise OSError("enter")
        yield BrokenSpan()
        if self.step == "exit":
            raise OSError("exit")

    def current(self) -> Any:
        raise OSError("current")


def test_a_broken_meter_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    meter = GuardedMeter(BrokenMeter())
    with caplog.at_level(logging.DEBUG, "kumiko_django"):
        meter.count("c", job="a")
        meter.gauge("g", 1)
        meter.observe("h", 1)
        meter.succeeded("a", 1.0)
    (record,) = caplog.records
    assert 'KUMIKO["METER"] fails' in record.message
    assert record.levelno == logging.WARNING
    assert record.exc_info
    assert meter.faults.count == 4


@pytest.mark.parametrize("step", ["span", "enter", "exit"])
def test_a_broken_tracer_is_told_once(step: str, caplog: pytest.LogCaptureFixture) -> None:
    tracer = GuardedTracer(BrokenTracer(step))
    with caplog.at_level(logging.DEBUG, "kumiko_django"):
        with tracer.span("s") as span:
            assert span.context is None
            span.set_attribute("a", 1)
            span.fail("m")
        assert tracer.current() is None
    (record,) = caplog.records
    assert 'KUMIKO["TRACER"] fails' in record.message


@pytest.mark.parametrize("step", ["span", "enter", "exit", "none"])
@pytest.mark.parametrize("error", [ValueError("mine"), asyncio.CancelledError(), SystemExit(3)])
def test_what_the_block_raises_is_what_leaves_it(step: str, error: BaseException) -> None:
    """P25: and never something else in its place."""
    tracer = GuardedTracer(BrokenTracer(step))
    with pytest.raises(type(error)) as caught, tracer.span("s"):
        raise error
    assert caught.value is error


class Garbage:
    """A tracer that gives what no tracer should: text, say, where ids are asked for."""

    def __init__(self, value: Any) -> None:
        self.context = value

    def span(self, name: str, **options: Any) -> Any:
        return self

    def current(self) -> Any:
        return self.context

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *details: object) -> None:
        pass


@pytest.mark.parametrize("value", ["00-a-b-01", 5, ("a" * 32, "b" * 16), object(), TraceParent])
def test_what_is_no_place_in_a_trace_is_none(value: Any) -> None:
    """B210, P24: it would fail dispatches, and end runs without a record."""
    tracer = GuardedTracer(Garbage(value))
    with tracer.span("s") as span:
        assert span.context is None
    assert tracer.current() is None
    assert tracer.faults.count == 2


@pytest.mark.parametrize("block", ["s", object()])
def test_what_is_no_block_is_no_span(block: Any) -> None:
    tracer = GuardedTracer(SimpleNamespace(span=lambda *_, **__: block, current=lambda: None))
    with tracer.span("s") as span:
        assert span.context is None
        span.set_attribute("a", 1)
    assert tracer.faults.count == 1


class Passing:
    """A tracer whose blocks raise again what they are left with."""

    def span(self, name: str, **options: Any) -> Any:
        return self

    def current(self) -> Any:
        return None

    def __enter__(self) -> Any:
        return BrokenSpan()

    def __exit__(self, kind: Any, error: BaseException, traceback: Any) -> None:
        raise error


def test_a_block_that_raises_what_it_is_left_with_is_not_broken() -> None:
    tracer = GuardedTracer(Passing())
    with pytest.raises(ValueError, match="mine"), tracer.span("s"):
        raise ValueError("mine")
    assert tracer.faults.count == 0


def test_a_success_is_not_replaced_by_an_earlier_one() -> None:
    """P84: what the database knows comes in while jobs run already."""
    below = InMemoryMeter()
    meter = GuardedMeter(below)

    def told() -> float | None:
        return below.value(names.LAST_SUCCESS.name, job="a")

    meter.succeeded("a", 0.0)
    assert told() == 0.0, "a job that never ran has a series all the same"
    meter.succeeded("a", 20.0)
    meter.succeeded("a", 10.0)
    assert told() == 20.0
