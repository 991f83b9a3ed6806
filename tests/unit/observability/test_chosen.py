"""``METER`` and ``TRACER``: what may be given, made once, and what is said when it cannot be."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pytest_django import Settings

from kumiko_django import SettingsError
from kumiko_django.observability.chosen import current_trace, get_meter, get_tracer, problems
from kumiko_django.observability.memory import InMemoryMeter, InMemoryTracer
from kumiko_django.types import ambient
from kumiko_django.types.ambient import TraceContext
from tests.helpers.processes import run_python

pytestmark = pytest.mark.once

MADE: list[InMemoryMeter] = []
AT_HAND = InMemoryMeter()
HERE = __name__


def make() -> InMemoryMeter:
    MADE.append(InMemoryMeter())
    return MADE[-1]


def fails() -> InMemoryMeter:
    raise RuntimeError("no collector at localhost")


def makes_nothing() -> None:
    pass


def needs(argument: str) -> InMemoryMeter:
    return InMemoryMeter()


def choose(settings: Settings, **values: Any) -> None:
    settings.KUMIKO = {**settings.KUMIKO, **values}


def test_without_settings_there_is_neither() -> None:
    """B020, B209."""
    assert get_meter() is None
    assert get_tracer() is None
    assert problems() == []


@pytest.mark.parametrize(
    "value", [AT_HAND, f"{HERE}.AT_HAND", lambda: AT_HAND], ids=["object", "path", "factory"]
)
def test_what_may_be_given(settings: Settings, value: Any) -> None:
    choose(settings, METER=value)
    meter, before = get_meter(), AT_HAND.value("given", how="so") or 0
    assert meter is not None
    meter.count("given", how="so")
    assert AT_HAND.value("given", how="so") == before + 1


@pytest.mark.parametrize("value", [InMemoryTracer(), InMemoryTracer, f"{HERE}.InMemoryTracer"])
def test_a_class_is_a_factory(settings: Settings, value: Any) -> None:
    choose(settings, TRACER=value)
    tracer = get_tracer()
    assert tracer is not None
    with tracer.span("s") as span:
        assert tracer.current() == span.context
        assert span.context is not None


def test_it_is_made_once_for_all_threads(settings: Settings) -> None:
    choose(settings, METER=f"{HERE}.make")
    MADE.clear()
    barrier, found = threading.Barrier(8), []

    def ask() -> None:
        barrier.wait()
        found.append(get_meter())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(MADE) == 1
    assert len(set(map(id, found))) == 1


FORK = """
import os
from kumiko_django.observability.chosen import get_meter

before = get_meter()
assert before is not None
child = os.fork()
if child == 0:
    os._exit(0 if get_meter() not in (None, before) else 1)
assert os.waitpid(child, 0)[1] == 0
assert get_meter() is before
"""


def test_a_fork_makes_its_own() -> None:
    """It has none of the threads by which the parent's sends."""
    path = "kumiko_django.observability.InMemoryMeter"
    done = run_python(FORK, env={"KUMIKO_METER": path})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("key", ["METER", "TRACER"])
@pytest.mark.parametrize(
    ("value", "part"),
    [
        (f"{HERE}.fails", "raised RuntimeError: no collector at localhost"),
        (f"{HERE}.makes_nothing", "None is neither"),
        (f"{HERE}.needs", "missing 1 required positional argument: 'argument'"),
        (f"{HERE}.nothing", "cannot be imported"),
        (f"{HERE}.HERE", "is neither"),
        (makes_nothing, "None is neither"),
    ],
)
def test_what_cannot_be_had_is_named(settings: Settings, key: str, value: Any, part: str) -> None:
    choose(settings, **{key: value})
    ask = get_meter if key == "METER" else get_tracer
    for _ in range(2):
        with pytest.raises(SettingsError) as caught:
            ask()
        assert f'KUMIKO["{key}"]' in str(caught.value)
        assert part in str(caught.value)


def test_a_check_makes_nothing(settings: Settings) -> None:
    choose(settings, METER=f"{HERE}.fails", TRACER=f"{HERE}.nothing")
    (problem,) = problems()
    assert 'KUMIKO["TRACER"]' in problem


@pytest.mark.parametrize("value", [7, [], {}, object(), ""])
def test_a_wrong_value_is_refused_at_once(settings: Settings, value: Any) -> None:
    choose(settings, METER=value)
    with pytest.raises(SettingsError, match="METER"):
        get_meter()
    choose(settings, METER=None)


def test_the_current_trace_is_the_tracers_or_else_that_of_the_run(settings: Settings) -> None:
    """B046."""
    of_the_run = TraceContext("c" * 32, "d" * 16)
    assert current_trace() is None
    with ambient.entered({ambient.trace: of_the_run}):
        assert current_trace() == of_the_run
        choose(settings, TRACER=InMemoryTracer)
        assert current_trace() == of_the_run
        tracer = get_tracer()
        assert tracer is not None
        with tracer.span("s") as span:
            assert span.context is not None
            assert current_trace() == TraceContext.at(span.context)
