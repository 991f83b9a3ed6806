"""The span of a run, and the numbers of all: B124-B143, B208-B211 as far as a run shows them."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pytest_django import Settings

from kumiko_django import SYSTEM, JobContext, Unrecoverable, signals
from kumiko_django.broker.delivery import Complete, Fate, Postpone
from kumiko_django.history.models import JobRun
from kumiko_django.observability import names
from kumiko_django.observability.memory import InMemoryMeter, InMemorySpan, InMemoryTracer
from kumiko_django.types import ambient
from kumiko_django.types.trace import TraceParent
from tests.unit.run.deliveries import NAME, RunOne, delivery

pytestmark = [pytest.mark.once, pytest.mark.django_db(transaction=True)]

STORED = TraceParent("a" * 32, "b" * 16, sampled=False)
OTHER = TraceParent("c" * 32, "d" * 16)


@pytest.fixture
def tracer(settings: Settings) -> InMemoryTracer:
    made = InMemoryTracer()
    settings.KUMIKO = {**settings.KUMIKO, "TRACER": made}
    return made


@pytest.fixture
def meter(settings: Settings) -> InMemoryMeter:
    made = InMemoryMeter()
    settings.KUMIKO = {**settings.KUMIKO, "METER": made}
    return made


def only(tracer: InMemoryTracer) -> InMemorySpan:
    (span,) = tracer.spans
    assert (span.name, span.kind, span.ended) == ("job.execute", "consumer", True)
    return span


def data(**more: Any) -> dict[str, Any]:
    return {"_tenantId": "acme", **more}


def nothing(payload: Any, ctx: JobContext) -> None:
    pass


def fails(payload: Any, ctx: JobContext) -> None:
    raise ValueError("password=hunter22")


# ------------------------------------------------------------------------------------------- spans


@pytest.mark.parametrize("queued", [True, False])
def test_the_attributes_of_the_span(queued: bool, tracer: InMemoryTracer, run_one: RunOne) -> None:
    """B137: exactly these; a boot gate is consumed from no lane."""
    run_one(nothing, delivery(job_name=NAME, job_id="j", attempt=2, max_attempts=3, queued=queued))
    lane = {"kumiko.job.consumer_lane": "worker"} if queued else {}
    assert only(tracer).attributes == {
        "job.name": NAME,
        "job.id": "j",
        "job.attempt": 2,
        "kumiko.tenant_id": "acme",
        "kumiko.job.run_in": "worker",
        **lane,
    }


def test_the_lane_of_the_definition_and_the_one_it_came_from(
    tracer: InMemoryTracer, run_one: RunOne
) -> None:
    """B137: they differ where another producer has mistaken the queue."""
    run_one(nothing, delivery(job_name=NAME, lane="api"))
    attributes = only(tracer).attributes
    assert attributes["kumiko.job.run_in"] == "worker"
    assert attributes["kumiko.job.consumer_lane"] == "api"


@pytest.mark.parametrize(
    ("stored", "parent"),
    [
        ({}, None),
        ({"_traceparent": str(STORED)}, STORED),
        ({"_traceContext": {"traceId": "c" * 32, "spanId": "d" * 16}}, OTHER),
        (
            {
                "_traceparent": str(STORED),
                "_traceContext": {"traceId": "c" * 32, "spanId": "d" * 16},
            },
            STORED,
        ),
        (
            {
                "_traceparent": "00-0-0-01",
                "_traceContext": {"traceId": "C" * 32, "spanId": "d" * 16},
            },
            OTHER,
        ),
        ({"_traceparent": ["x"], "_traceContext": {"traceId": "t", "spanId": "s"}}, None),
    ],
)
def test_the_parent_is_the_stored_span(
    stored: dict[str, Any], parent: TraceParent | None, tracer: InMemoryTracer, run_one: RunOne
) -> None:
    """B138, P91: W3C's form first; one that is malformed is dropped, and the run begins a trace."""
    assert run_one(nothing, delivery(job_name=NAME, data=data(**stored))) == Complete()
    span = only(tracer)
    assert (span.parent, span.links) == (parent, ())
    run = JobRun.objects.get()
    assert run.trace_id == span.context.trace_id, "on record, also where it begins"
    assert (run.status, span.status) == ("completed", "unset")


def test_a_child_of_a_fan_out_begins_a_trace_and_links_to_it(
    tracer: InMemoryTracer, run_one: RunOne
) -> None:
    """P91: ten thousand children would make one trace that nobody can look at."""
    stored = data(_traceparent=str(STORED), _parentRunId="01890000-0000-7000-8000-000000000000")
    run_one(nothing, delivery(job_name=NAME, data=stored))
    span = only(tracer)
    assert (span.parent, span.links) == (None, (STORED,))
    assert span.context.trace_id != STORED.trace_id
    assert JobRun.objects.get().trace_id == span.context.trace_id


def test_a_failure_marks_the_span(tracer: InMemoryTracer, run_one: RunOne) -> None:
    """B139: with what was raised, and a text without secrets."""
    run_one(fails, delivery(job_name=NAME, max_attempts=2))
    span = only(tracer)
    assert (span.status, span.error) == ("error", "ValueError: password=***")
    assert [type(error) for error in span.exceptions] == [ValueError]


def test_a_run_that_is_refused_has_a_span_too(tracer: InMemoryTracer, run_one: RunOne) -> None:
    """B133, B139: its handler is not called, and the trace says why."""
    run_one(nothing, delivery(job_name=NAME, data=data(_writeOrigin="?", _traceparent=str(STORED))))
    span = only(tracer)
    assert (span.status, span.parent) == ("error", STORED)
    assert "cannot be trusted" in span.error
    assert JobRun.objects.get().trace_id == STORED.trace_id


def test_a_quarantined_job_marks_its_span(tracer: InMemoryTracer, run_one: RunOne) -> None:
    """B139, P30."""
    run_one(nothing, delivery(job_name=NAME, losses=10, start=11))
    span = only(tracer)
    assert span.status == "error"
    assert "its workers died" in span.error


@pytest.mark.parametrize("how", ["deferral", "interrupted"])
def test_what_is_no_failure_does_not_mark_it(
    how: str, tracer: InMemoryTracer, run_one: RunOne
) -> None:
    def defers(payload: Any, ctx: JobContext) -> Any:
        return ctx.defer(5)

    settlement = run_one(
        defers,
        delivery(job_name=NAME, data=data(_traceparent=str(STORED))),
        interrupt=how == "interrupted",
    )
    assert only(tracer).status == "unset"
    if isinstance(settlement, Postpone):
        kept = json.loads(settlement.data)["_traceparent"]
        assert kept == str(STORED), "it goes on below the same span"


def test_the_handler_is_in_the_span(tracer: InMemoryTracer, run_one: RunOne) -> None:
    """B138, B168: in its thread; what it dispatches or traces is below it."""
    seen: list[Any] = []

    def look(payload: Any, ctx: JobContext) -> None:
        seen.append((tracer.current(), ambient.trace.get()))
        with tracer.span("mine"):
            pass

    run_one(look)
    span, mine = tracer.spans
    assert seen == [(span.context, ambient.TraceContext.at(span.context))]
    assert (mine.name, mine.parent) == ("mine", span.context)
    assert tracer.current() is None


def test_an_async_handler_is_in_the_span_with_its_tasks(
    tracer: InMemoryTracer, run_one: RunOne
) -> None:
    seen: list[TraceParent | None] = []

    async def note() -> None:
        await asyncio.sleep(0)
        seen.append(tracer.current())

    async def look(payload: Any, ctx: JobContext) -> None:
        await asyncio.gather(note(), asyncio.create_task(note()))
        await asyncio.to_thread(lambda: seen.append(tracer.current()))

    run_one(look)
    assert seen == [only(tracer).context] * 3


def test_a_handler_that_does_not_end_leaves_the_span_ended(
    tracer: InMemoryTracer, run_one: RunOne
) -> None:
    """Its thread is still in the context in which the span was entered."""
    begun, go = threading.Event(), threading.Event()

    def stays(payload: Any, ctx: JobContext) -> None:
        begun.set()
        go.wait(20)

    def leave(loop: asyncio.AbstractEventLoop, runner: Any) -> None:
        begun.wait(10)
        loop.call_soon_threadsafe(runner.interrupt)

    try:
        run_one(stays, meanwhile=leave)
        assert only(tracer).status == "unset"
        assert JobRun.objects.get().status == "interrupted"
    finally:
        go.set()


# ------------------------------------------------------------------------------------------- order


def test_the_steps_in_their_order(
    tracer: InMemoryTracer, meter: InMemoryMeter, settings: Settings, run_one: RunOne
) -> None:
    """B124, B125, B128, B210: the span around start hook and handler; numbers before the end hook.

    The start hook inside of the span is ours: the record of a start has the trace's id.
    """
    steps: list[str] = []
    stamp = names.LAST_SUCCESS.name

    def started(**_: Any) -> None:
        steps.append(f"start hook, span {'ended' if tracer.spans[0].ended else 'open'}")

    def completed(**_: Any) -> None:
        stamped = meter.value(stamp, job=NAME) is not None
        steps.append(f"complete hook, span ended {tracer.spans[0].ended}, stamped {stamped}")
        raise RuntimeError("a broken hook")

    def handler(payload: Any, ctx: JobContext) -> None:
        steps.append(f"handler, stamped {meter.value(stamp, job=NAME) is not None}")

    signals.job_started.connect(started)
    signals.job_completed.connect(completed)
    try:
        assert run_one(handler) == Complete()
    finally:
        signals.job_started.disconnect(started)
        signals.job_completed.disconnect(completed)
    assert steps == [
        "start hook, span open",
        "handler, stamped False",
        "complete hook, span ended True, stamped True",
    ]
    finished_at = JobRun.objects.get().finished_at
    assert finished_at is not None
    assert meter.value(stamp, job=NAME) == pytest.approx(finished_at.timestamp(), abs=0.001)


# ----------------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    ("error", "attempts", "outcome"),
    [(None, 1, "completed"), (ValueError(), 2, "retry"), (ValueError(), 1, "failed"),
     (Unrecoverable(), 2, "failed")],
)  # fmt: skip
def test_a_run_is_counted_and_timed(
    error: Exception | None, attempts: int, outcome: str, meter: InMemoryMeter, run_one: RunOne
) -> None:
    """P85, B211: by what it came to; a success is stamped, a failure is not."""

    def handler(payload: Any, ctx: JobContext) -> None:
        if error is not None:
            raise error

    run_one(handler, delivery(job_name=NAME, max_attempts=attempts))
    labels = {"job": NAME, "lane": "worker"}
    assert meter.series(names.RUNS.name) == [{**labels, "outcome": outcome}]
    assert meter.value(names.RUNS.name, **labels, outcome=outcome) == 1
    run = JobRun.objects.get()
    duration = meter.histogram(names.DURATION.name, **labels)
    wait = meter.histogram(names.WAIT.name, **labels)
    assert duration is not None
    assert wait is not None
    assert duration.total == (run.duration_ms or 0) / 1000
    assert wait.total == (run.wait_ms or 0) / 1000
    assert (duration.count, wait.count) == (1, 1)
    stamped = meter.series(names.LAST_SUCCESS.name)
    assert stamped == ([{"job": NAME}] if outcome == "completed" else [])


def test_a_deferral_is_counted_and_not_stamped(meter: InMemoryMeter, run_one: RunOne) -> None:
    """B211."""

    def defers(payload: Any, ctx: JobContext) -> Any:
        return ctx.defer(5)

    run_one(defers)
    assert [s["outcome"] for s in meter.series(names.RUNS.name)] == ["deferred"]
    assert meter.series(names.LAST_SUCCESS.name) == []


@pytest.mark.parametrize(("start", "losses"), [(2, 0), (2, 1)])
def test_only_a_first_start_has_waited(
    start: int, losses: int, meter: InMemoryMeter, run_one: RunOne
) -> None:
    run_one(nothing, delivery(job_name=NAME, start=start, losses=losses))
    assert meter.series(names.WAIT.name) == []
    assert len(meter.series(names.DURATION.name)) == 1


def test_what_the_queue_does_not_agree_to_is_no_success(
    meter: InMemoryMeter, run_one: RunOne
) -> None:
    """B211, design 8: a run whose lock was lost is void."""
    run_one(nothing, fate=Fate.VOID)
    assert [s["outcome"] for s in meter.series(names.RUNS.name)] == ["lost"]
    assert meter.series(names.LAST_SUCCESS.name) == []


def test_a_job_that_nobody_knows_is_counted_under_no_name(
    meter: InMemoryMeter, run_one: RunOne, settings: Settings
) -> None:
    """user-needs 7: each time that it is put back; names of others make no series of ours."""
    foreign = delivery(job_name="testapp:job:nothing")
    assert isinstance(run_one(nothing, foreign), Postpone)
    assert meter.value(names.PUT_BACK.name, lane="worker") == 1
    assert meter.names == {names.PUT_BACK.name}


def test_a_job_that_nobody_knew_for_long_is_counted_as_failed(
    meter: InMemoryMeter, run_one: RunOne, settings: Settings
) -> None:
    settings.KUMIKO = {**settings.KUMIKO, "UNKNOWN_JOB_AGE": 0}
    run_one(nothing, delivery(job_name="testapp:job:nothing"))
    assert meter.value(names.RUNS.name, job="unknown", lane="worker", outcome="failed") == 1


class Broken:
    """A meter and a tracer in one that raise whatever they are asked."""

    def _raise(self, *args: Any, **kwargs: Any) -> Any:
        raise OSError("collector away")

    count = gauge = observe = span = current = _raise


class BrokenLater(Broken):
    """A tracer whose spans begin, and raise from then on."""

    @contextmanager
    def _span(self, *args: Any, **kwargs: Any) -> Iterator[Broken]:
        yield Broken()
        raise OSError("collector away")

    span = _span


@pytest.mark.parametrize("broken", [Broken, BrokenLater])
def test_a_meter_and_a_tracer_that_fail_change_nothing(
    broken: type, settings: Settings, run_one: RunOne, caplog: pytest.LogCaptureFixture
) -> None:
    """B210, P24: the run completes, its record is written, and each is told of once."""
    made = broken()
    settings.KUMIKO = {**settings.KUMIKO, "METER": made, "TRACER": made}

    def handler(payload: Any, ctx: JobContext) -> str:
        ctx.metrics_for().count("mine")
        return "fine"

    with caplog.at_level(logging.WARNING, "kumiko_django"):
        assert run_one(handler) == Complete("fine")
    assert JobRun.objects.get().status == "completed"
    assert sorted(record.message[:16] for record in caplog.records) == [
        'KUMIKO["METER"] ', 'KUMIKO["TRACER"]',
    ]  # fmt: skip


# ----------------------------------------------------------------------------------------- context


def test_what_the_context_has_for_this(meter: InMemoryMeter, run_one: RunOne) -> None:
    """B158, B160, B161, B162: registry, whom it acts as, the run's log, metrics of its own."""
    seen: list[JobContext] = []

    def handler(payload: Any, ctx: JobContext) -> None:
        seen.append(ctx)
        ctx.log.info("a line")
        metrics = ctx.metrics_for(kind="mail")
        metrics.count("sent_total", 2)
        metrics.observe("size", 3.0, to="x")

    run_one(handler, delivery(job_name=NAME, data=data(_triggeredById="user-7")))
    (ctx,) = seen
    assert ctx.registry.get(NAME).handler is handler
    assert (ctx.system_user.tenant_id, ctx.system_user.id) == (
        "acme", "00000000-0000-0000-0000-000000000000",
    )  # fmt: skip
    assert ctx.system_user.tenant_id == ctx.tenant_id != SYSTEM
    assert meter.value("sent_total", job=NAME, kind="mail") == 2
    assert meter.histogram("size", job=NAME, kind="mail", to="x") is not None
    assert JobRun.objects.get().logs.get().message == "a line"


def test_metrics_go_nowhere_without_a_meter(run_one: RunOne) -> None:
    """B162."""

    def handler(payload: Any, ctx: JobContext) -> str:
        ctx.metrics_for().gauge("g", 1)
        return "fine"

    assert run_one(handler) == Complete("fine")


@pytest.mark.parametrize("value", [None, 7, "text", {"defer": 5}, [5], object()])
def test_only_a_deferral_steers_the_run(value: Any, run_one: RunOne) -> None:
    """B142: whatever else a handler returns, it is done."""
    assert isinstance(run_one(lambda payload, ctx: value), Complete)
    assert JobRun.objects.get().status == "completed"
