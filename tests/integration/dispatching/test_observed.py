"""The span of a dispatch, the trace that its jobs carry, and the count of what became of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from pytest_django import Settings

from kumiko_django import (
    BrokerUnavailable,
    PayloadError,
    adispatch,
    aemit,
    dispatch,
    emit,
    system_scope,
    tenant_scope,
)
from kumiko_django.definitions.registry import registry
from kumiko_django.observability import names
from kumiko_django.observability.memory import InMemoryMeter, InMemorySpan, InMemoryTracer
from kumiko_django.types import ambient
from kumiko_django.types.ambient import TraceContext
from kumiko_django.types.trace import TraceParent
from kumiko_django.worker.boot import boot_job
from tests.app.guarded import guarded_skip
from tests.app.jobs import record
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.queues import QueueState
from tests.integration.dispatching.entries import ENTRIES, Entry

pytestmark = [pytest.mark.once, pytest.mark.django_db(transaction=True)]

NAME = "testapp:job:record"


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


@pytest.fixture
def queue(queue_state: QueueStateFactory) -> QueueState:
    return queue_state("worker")


def counted(meter: InMemoryMeter, status: str, job: str = NAME) -> float | None:
    return meter.value(names.DISPATCHED.name, job=job, status=status)


def carried(queue: QueueState) -> set[TraceParent | None]:
    jobs = queue.jobs("wait", "delayed", "prioritized")
    for job in jobs:
        of_the_original = job.data["_traceContext"]
        assert job.data["_traceparent"] == (
            f"00-{of_the_original['traceId']}-{of_the_original['spanId']}-01"
        )
    return {TraceParent.parse(job.data["_traceparent"]) for job in jobs}


def the_dispatch(tracer: InMemoryTracer) -> InMemorySpan:
    (span,) = tracer.named("job.dispatch")
    assert (span.kind, span.ended) == ("producer", True)
    return span


@pytest.mark.parametrize("send", ENTRIES.values(), ids=ENTRIES)
def test_every_way_to_dispatch_is_traced_and_counted(
    send: Entry, tracer: InMemoryTracer, meter: InMemoryMeter, queue: QueueState
) -> None:
    """B046, P91: below the span of the request; all jobs of one call below one span."""
    with tracer.span("request") as request:
        answers = send()
    span = the_dispatch(tracer)
    assert span.parent == request.context
    assert span.attributes == {"job.name": NAME, "kumiko.job.run_in": "worker"}
    assert carried(queue) == {span.context}
    assert counted(meter, "queued") == len(answers)
    assert tracer.current() is None


@pytest.mark.parametrize("send", [emit, async_to_sync(aemit)], ids=["sync", "async"])
def test_an_event_is_one_span(
    send: Callable[..., Any], tracer: InMemoryTracer, meter: InMemoryMeter, queue: QueueState
) -> None:
    """B046: whatever it starts."""
    answers = send("order.changed", {"country": "DE"}, tenant_id="acme")
    span = the_dispatch(tracer)
    assert answers
    assert span.attributes == {"kumiko.event": "order.changed"}
    assert carried(queue) == {span.context}
    assert sum(meter.value(names.DISPATCHED.name, **one) or 0 for one in
               meter.series(names.DISPATCHED.name)) == len(answers)  # fmt: skip


def test_without_a_tracer_the_trace_of_the_run_goes_on(queue: QueueState) -> None:
    """B168: a job that another system's trace has started hands it on."""
    with ambient.entered({ambient.trace: TraceContext("a" * 32, "b" * 16, sampled=False)}):
        record.dispatch({}, tenant_id="acme")
    record.dispatch({}, tenant_id="acme")
    first, second = (queue.job(job_id).data for job_id in queue.wait)
    assert first["_traceparent"] == f"00-{'a' * 32}-{'b' * 16}-00"
    assert not {"_traceparent", "_traceContext"} & set(second)


def test_outside_of_spans_it_is_below_the_run(tracer: InMemoryTracer) -> None:
    """B168: as for receivers of a run's last signal."""
    of_the_run = TraceContext("a" * 32, "b" * 16)
    with ambient.entered({ambient.trace: of_the_run}), tenant_scope("acme"):
        record.dispatch({})
    span = the_dispatch(tracer)
    assert span.parent == of_the_run.parent
    assert span.attributes["kumiko.tenant_id"] == "acme"


def test_a_dispatch_that_fails_marks_its_span(tracer: InMemoryTracer, queue: QueueState) -> None:
    """B139."""
    with pytest.raises(PayloadError):
        record.dispatch({"n": object()}, tenant_id="acme")
    assert the_dispatch(tracer).status == "error"
    assert queue.pending() == 0


def test_what_a_commit_sends_is_counted_when_it_is_sent(
    meter: InMemoryMeter, tracer: InMemoryTracer, queue: QueueState
) -> None:
    """P64: a rollback has dispatched nothing."""
    with transaction.atomic():
        record.dispatch_many([{}, {}], tenant_id="acme")
        assert counted(meter, "queued") is None
    assert counted(meter, "queued") == 2
    assert carried(queue) == {the_dispatch(tracer).context}


@pytest.mark.parametrize("send", [dispatch, async_to_sync(adispatch)], ids=["sync", "async"])
def test_skips_are_counted_by_their_status(send: Callable[..., Any], meter: InMemoryMeter) -> None:
    """P85."""
    for _ in range(3):
        send(guarded_skip, {}, tenant_id="acme")
    name = guarded_skip.definition.qualified_name
    assert counted(meter, "queued", name) == 1
    assert counted(meter, "skipped", name) == 2


def test_jobs_that_nobody_is_told_of_are_counted_as_failed(
    meter: InMemoryMeter, settings: Settings
) -> None:
    """P85: after a commit, and of an event. Where an error is raised, its receiver counts."""
    settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": "redis://127.0.0.1:1/0"}
    with transaction.atomic():
        record.dispatch_many([{}, {}], tenant_id="acme")
    assert counted(meter, "failed") == 2
    with pytest.raises(BrokerUnavailable):
        record.dispatch({}, tenant_id="acme")
    assert counted(meter, "failed") == 2
    answers = emit("order.changed", {"country": "DE"}, tenant_id="acme")
    failed = sum(meter.value(names.DISPATCHED.name, **one) or 0 for one in
                 meter.series(names.DISPATCHED.name))  # fmt: skip
    assert failed == 2 + len(answers)


def test_a_boot_job_carries_the_span_of_its_worker(tracer: InMemoryTracer) -> None:
    """B046, if there is one."""
    definition = registry.get(NAME)
    assert "_traceparent" not in boot_job(definition).data
    with tracer.span("start") as span, system_scope("boot"):
        assert boot_job(definition).data["_traceparent"] == str(span.context)
