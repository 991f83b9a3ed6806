"""The meter and the tracer that tests look into."""

from __future__ import annotations

import asyncio
import contextvars
from concurrent.futures import ThreadPoolExecutor

import pytest

from kumiko_django.history.stats import BUCKET_BOUNDS_MS
from kumiko_django.observability.memory import (
    SECONDS_BOUNDS,
    Histogram,
    InMemoryMeter,
    InMemoryTracer,
)
from kumiko_django.observability.meter import Meter, Metrics
from kumiko_django.observability.tracer import Tracer
from kumiko_django.types.trace import TraceParent

pytestmark = pytest.mark.once

ABOVE = TraceParent("a" * 32, "b" * 16, sampled=False)


def test_they_are_what_the_settings_ask_for() -> None:
    """For the type checker, too."""
    meter: Meter = InMemoryMeter()
    tracer: Tracer = InMemoryTracer()

    assert callable(meter.count)
    assert callable(tracer.span)


def test_a_counter_adds_up_and_a_gauge_is_set() -> None:
    meter = InMemoryMeter()
    meter.count("c", job="a")
    meter.count("c", 2, job="a")
    meter.count("c", job="b")
    meter.gauge("g", 7, lane="worker", state="x")
    meter.gauge("g", 5, state="x", lane="worker")

    assert (meter.value("c", job="a"), meter.value("c", job="b")) == (3, 1)
    assert meter.value("g", lane="worker", state="x") == 5
    assert (meter.value("c"), meter.value("g", lane="worker"), meter.value("x")) == (None,) * 3
    assert meter.series("c") == [{"job": "a"}, {"job": "b"}]
    assert meter.names == {"c", "g"}


def test_a_histogram_has_buckets() -> None:
    meter = InMemoryMeter()
    for value in (0.0005, 0.001, 0.0011, 4_000):
        meter.observe("h", value, job="a")
    found = meter.histogram("h", job="a")

    assert isinstance(found, Histogram)
    assert (found.count, round(found.total, 4)) == (4, 4000.0026)
    assert (found.buckets[0], found.buckets[1], found.buckets[-1]) == (2, 1, 1)
    assert sum(found.buckets) == 4
    assert meter.histogram("h") is None
    assert meter.series("h") == [{"job": "a"}]
    assert [round(bound * 1000) for bound in SECONDS_BOUNDS] == list(BUCKET_BOUNDS_MS)


def test_it_counts_from_many_threads() -> None:
    meter = InMemoryMeter()

    def work(_: int) -> None:
        for _ in range(200):
            meter.count("c")
            meter.observe("h", 1.0)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    found = meter.histogram("h")
    assert meter.value("c") == 1600
    assert found is not None
    assert found.count == 1600


def test_metrics_of_a_job_have_its_labels() -> None:
    """B162: they win over what is given at the call, and go nowhere without a meter."""
    meter = InMemoryMeter()
    metrics = Metrics(meter, {"job": "a", "kind": "mail"})
    metrics.count("c", 2, job="another", to="x")
    metrics.gauge("g", 1)
    metrics.observe("h", 1)

    assert meter.value("c", job="a", kind="mail", to="x") == 2
    assert meter.value("g", job="a", kind="mail") == 1
    assert meter.histogram("h", job="a", kind="mail") is not None
    nowhere = Metrics(None, {"job": "a"})
    nowhere.count("c")
    nowhere.gauge("g", 1)
    nowhere.observe("h", 1)


def test_spans_are_below_the_current_one() -> None:
    tracer = InMemoryTracer()
    assert tracer.current() is None
    with tracer.span("outer", attributes={"n": 1}) as outer:
        assert tracer.current() == outer.context
        with tracer.span("inner", kind="producer") as inner:
            inner.set_attribute("m", True)
        with tracer.span("root", parent=None, links=[ABOVE]) as root:
            assert root.context.trace_id != outer.context.trace_id
        assert not outer.ended
    assert tracer.current() is None
    assert (inner.parent, inner.context.trace_id) == (outer.context, outer.context.trace_id)
    assert (root.parent, root.links) == (None, (ABOVE,))
    assert (outer.attributes, inner.attributes, inner.kind) == ({"n": 1}, {"m": True}, "producer")
    assert tracer.spans == [outer, inner, root]
    assert tracer.named("inner") == [inner]
    assert outer.ended


def test_a_parent_is_taken_with_its_flag() -> None:
    """P91: whether a trace is kept is decided where it begins."""
    tracer = InMemoryTracer()
    with tracer.span("s", parent=ABOVE) as span:
        pass
    assert (span.parent, span.context.trace_id, span.context.sampled) == (ABOVE, "a" * 32, False)
    with InMemoryTracer(sampled=False).span("s") as span:
        assert not span.context.sampled


def test_an_exception_that_leaves_the_block_fails_the_span() -> None:
    """B139."""
    tracer = InMemoryTracer()
    error = ValueError("v")
    with pytest.raises(ValueError, match="v"), tracer.span("s") as span:
        raise error
    assert (span.status, span.error, span.exceptions) == ("error", "ValueError: v", [error])
    assert span.ended


def test_a_block_may_be_left_in_another_context() -> None:
    """As that of a handler whose thread does not end."""
    tracer = InMemoryTracer()
    block = tracer.span("s")
    span = contextvars.copy_context().run(block.__enter__)
    block.__exit__(None, None, None)
    assert span.ended


async def test_tasks_see_the_span_that_they_were_started_in() -> None:
    tracer = InMemoryTracer()

    async def look() -> TraceParent | None:
        await asyncio.sleep(0)
        return tracer.current()

    with tracer.span("s") as span:
        task = asyncio.create_task(look())
    assert tracer.current() is None
    assert await task == span.context
