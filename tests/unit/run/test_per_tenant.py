"""The run of a wrapper, step by step and more than once, against the real queue (B061-B071)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any, Protocol

import pytest
from pytest_django import Settings

from kumiko_django import JobContext, JobDefinition, dispatch
from kumiko_django.broker.delivery import Complete, Fail, Fate, Retry, Settlement
from kumiko_django.definitions.registry import registry
from kumiko_django.dispatching import fan_out as fan_out_module
from kumiko_django.dispatching.fan_out import FanOut
from kumiko_django.history.models import JobRun
from kumiko_django.history.recorder import Recorder
from kumiko_django.observability.memory import InMemoryMeter, InMemoryTracer
from kumiko_django.run import per_tenant as per_tenant_module
from kumiko_django.run.runner import Runner
from kumiko_django.types.ids import SYSTEM
from kumiko_django.types.trace import TraceParent
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.queues import QueueState
from tests.unit.run.deliveries import NAME, delivery

pytestmark = pytest.mark.django_db(transaction=True)
WRAPPER = f"_perTenant:{NAME}"
CREATED_MS = round(time.time() * 1000)


class Tenants:
    """What ``TENANTS`` gives; a test changes it."""

    def __init__(self) -> None:
        self.ids: list[Any] = ["a", "b"]

    def __call__(self) -> list[Any]:
        return list(self.ids)


@pytest.fixture
def tenants(settings: Settings) -> Tenants:
    """Two tenants."""
    given = Tenants()
    settings.KUMIKO = {**settings.KUMIKO, "TENANTS": given}
    return given


class Deliver(Protocol):
    """``deliver``"""

    def __call__(self, **values: Any) -> Settlement: ...


@pytest.fixture
def deliver(recorder: Recorder) -> Iterator[Deliver]:
    """Run one delivery of the wrapper ``w`` (or what is given) after the other."""

    def handler(payload: Any, ctx: JobContext) -> str:
        return f"{ctx.tenant_id}: {payload}"

    def run(**values: Any) -> Settlement:
        given = delivery(
            **{"job_name": WRAPPER, "job_id": "w", "created_at_ms": CREATED_MS, "data": {"n": 1},
               "max_attempts": 3, **values}
        )  # fmt: skip

        async def main() -> Settlement:
            runner = Runner(recorder, "worker-1", lambda delivery: None)
            try:
                verdict = await runner.run(given)
                await verdict.told(Fate.AGREED)
                return verdict.settlement
            finally:
                runner.close()

        settlement = asyncio.run(main())
        recorder.flush().result(5)
        return settlement

    with registry.isolated():
        registry.register(
            JobDefinition(handler=handler, app_label="testapp", name="under-test", per_tenant=True)
        )
        yield run


def counted(
    planned: int, enqueued: int, already_there: int, *, parked: int = 0, skipped: int = 0
) -> Complete:
    return Complete(
        {"planned": planned, "enqueued": enqueued, "parked": parked, "skipped": skipped,
         "already_there": already_there}
    )  # fmt: skip


def forget(queue: QueueState, *job_ids: str) -> None:
    """Remove jobs from the queue, as its retention does."""
    for job_id in job_ids:
        queue.client.delete(queue.key(job_id))
        queue.client.lrem(queue.key("wait"), 0, job_id)


def test_a_wrapper_that_runs_again_adds_what_is_missing(
    deliver: Deliver, tenants: Tenants, queue_state: QueueStateFactory
) -> None:
    """B066, B224, P39: the tenants are asked for again; what is there is left alone."""
    assert deliver(start=1) == counted(2, 2, 0)
    assert queue_state().wait == ["child-w-a", "child-w-b"]
    tenants.ids = ["a", "b", "c"]
    assert deliver(start=2) == counted(3, 1, 2)
    assert queue_state().wait == ["child-w-a", "child-w-b", "child-w-c"]
    assert deliver(start=3, attempt=2) == counted(3, 0, 3)
    first, second, third = JobRun.objects.order_by("start")
    parents = {job.id: job.data["_parentRunId"] for job in queue_state().jobs("wait")}
    assert parents == {
        "child-w-a": str(first.id), "child-w-b": str(first.id), "child-w-c": str(second.id),
    }  # fmt: skip
    assert (third.result or {})["already_there"] == 3


def test_children_that_the_queue_has_forgotten_are_not_made_again(
    deliver: Deliver, tenants: Tenants, queue_state: QueueStateFactory
) -> None:
    """P41, P42: a wrapper that runs again long afterwards; the history knows what has run."""
    deliver(start=1)
    child = queue_state().job("child-w-a")
    deliver(job_name=NAME, job_id="child-w-a", data=child.data, created_at_ms=child.created_at)
    assert JobRun.objects.get(queue_job_id="child-w-a").status == "completed"
    forget(queue_state(), "child-w-a", "child-w-b")
    assert deliver(start=2) == counted(2, 1, 1), "b has not run, and is gone: it is made again"
    assert queue_state().wait == ["child-w-b"]


def test_an_older_wrapper_of_the_same_id_is_another_one(
    deliver: Deliver, tenants: Tenants, queue_state: QueueStateFactory
) -> None:
    """What ran for a boot job's wrapper last month says nothing about the one of today."""
    deliver(start=1)
    child = queue_state().job("child-w-a")
    month_ago = CREATED_MS - 30 * 24 * 3600 * 1000
    deliver(job_name=NAME, job_id="child-w-a", data=child.data, created_at_ms=month_ago)
    forget(queue_state(), "child-w-a", "child-w-b")
    assert deliver(start=2) == counted(2, 2, 0)


def test_tenants_whose_ids_look_alike_have_a_child_each(
    deliver: Deliver, tenants: Tenants, queue_state: QueueStateFactory
) -> None:
    """P40, B065, user-needs 23: and each has the data of its own tenant."""
    tenants.ids = ["a.b", "a-b", "a:b", "ä", "a b", '"', 7]
    assert deliver() == counted(7, 7, 0)
    jobs = queue_state().jobs("wait")
    assert len({job.id for job in jobs}) == 7
    assert not any(":" in job.id for job in jobs)
    assert [job.data["_tenantId"] for job in jobs] == [str(t) for t in tenants.ids]
    assert all(job.data["n"] == 1 for job in jobs)


def test_a_tenant_that_the_wrapper_carries_is_overridden(
    deliver: Deliver, tenants: Tenants, queue_state: QueueStateFactory
) -> None:
    """B064: another producer's wrapper may carry one; its run is SYSTEM's all the same."""
    assert deliver(data={"n": 1, "_tenantId": "other", "tenantId": "x"}) == counted(2, 2, 0)
    assert [job.data["_tenantId"] for job in queue_state().jobs("wait")] == ["a", "b"]
    assert JobRun.objects.get().tenant_id == SYSTEM


def test_a_gated_origin_reaches_the_children(
    deliver: Deliver, tenants: Tenants, queue_state: QueueStateFactory
) -> None:
    """B070, P44: so do user, event, trace and correlation; each exactly as the wrapper has it."""
    data = {
        "n": 1, "_v": 1, "_triggeredById": "user-7", "_correlationId": "chain-1",
        "_writeOrigin": {"root": "anonymous", "viaJob": "testapp:job:before"},
        "_traceContext": {"traceId": "t" * 32, "spanId": "s" * 16},
        "_triggerName": "order.created",
        "_triggerEvent": {"id": "e1", "headers": {"n": 1}},
    }  # fmt: skip
    deliver(data=data)
    run = JobRun.objects.get()
    for job in queue_state().jobs("wait"):
        assert job.data == {**data, "_tenantId": job.id[-1], "_parentRunId": str(run.id)}
        assert job.name == NAME


def test_the_children_carry_the_span_of_the_wrappers_run(
    deliver: Deliver, tenants: Tenants, queue_state: QueueStateFactory, settings: Settings
) -> None:
    """P91: to which theirs link; and they are counted, apart from the wrapper."""
    tracer, meter = InMemoryTracer(), InMemoryMeter()
    settings.KUMIKO = {**settings.KUMIKO, "TRACER": tracer, "METER": meter}
    above = TraceParent("a" * 32, "b" * 16)
    deliver(data={"n": 1, "_traceparent": str(above)})
    (span,) = tracer.spans
    assert (span.attributes["job.name"], span.parent) == (WRAPPER, above)
    carried = {job.data["_traceparent"] for job in queue_state().jobs("wait")}
    assert carried == {str(span.context)}
    assert meter.value("kumiko_job_dispatched_total", job=NAME, status="queued") == 2


def test_a_broken_origin_refuses_the_wrapper(
    deliver: Deliver, tenants: Tenants, queue_state: QueueStateFactory
) -> None:
    """B133 holds for wrappers: nothing is made of what cannot be trusted."""
    assert isinstance(deliver(data={"_writeOrigin": "anonymous"}), Fail)
    assert queue_state().pending() == 0


def test_without_a_correlation_the_wrappers_run_begins_the_chain(
    deliver: Deliver, tenants: Tenants, queue_state: QueueStateFactory
) -> None:
    deliver()
    run = JobRun.objects.get()
    chains = {job.data["_correlationId"] for job in queue_state().jobs("wait")}
    assert chains == {run.correlation_id}


def test_no_tenants_is_a_fan_out_to_nobody(deliver: Deliver, tenants: Tenants) -> None:
    tenants.ids = []
    assert deliver() == counted(0, 0, 0)


def test_an_unusable_id_leaves_nobody_half_served(
    deliver: Deliver, tenants: Tenants, queue_state: QueueStateFactory
) -> None:
    """All ids are looked at before the first child is added; another attempt follows."""
    tenants.ids = ["a", ""]
    assert isinstance(deliver(), Retry)
    assert "tenant id" in JobRun.objects.get().error
    assert queue_state().pending() == 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"concurrency": "sequential"}, counted(2, 1, 0, parked=1)),
        ({"concurrency": "skip"}, counted(2, 1, 0, skipped=1)),
        ({"concurrency": "throttle", "throttle": 60}, counted(2, 1, 0, skipped=1)),
        ({"concurrency": "replace"}, counted(2, 2, 0)),
    ],
    ids=lambda value: value["concurrency"] if isinstance(value, dict) else "",
)
def test_a_wrapper_tells_what_the_door_has_made_of_its_children(
    options: dict[str, Any], expected: Complete, deliver: Deliver, tenants: Tenants
) -> None:
    """P39, B060: together they are what was planned, and the progress comes to its end."""
    job = JobDefinition(
        handler=lambda payload, ctx: None, app_label="testapp", name="kept-out", per_tenant=True,
        **options,
    )  # fmt: skip
    registry.register(job)
    dispatch(job, tenant_id="b")
    assert deliver(job_name="_perTenant:testapp:job:kept-out") == expected
    assert JobRun.objects.get(queue_job_id="w").progress == {"done": 2, "total": 2}


@pytest.mark.parametrize("name", [NAME, "testapp:job:unknown"])
def test_without_tenancy_a_wrapper_fails(
    deliver: Deliver, settings: Settings, name: str, queue_state: QueueStateFactory
) -> None:
    """B062, B063: the tenants are looked for first; the message names job, option and setting."""
    settings.KUMIKO = {**settings.KUMIKO, "TENANTS": None}
    assert isinstance(deliver(job_name=f"_perTenant:{name}"), Fail)
    error = JobRun.objects.get().error
    assert name in error
    assert "per_tenant=True" in error
    assert 'KUMIKO["TENANTS"]' in error
    assert queue_state().pending() == 0


def test_a_child_of_a_closed_tenant_is_skipped_and_says_so(
    deliver: Deliver, tenants: Tenants
) -> None:
    """P47: its job is done, its row says why; that of an active tenant runs."""
    tenants.ids = ["a"]
    parent = "01890000-0000-7000-8000-000000000001"
    for tenant in ("a", "closed"):
        data = {"n": 1, "_tenantId": tenant, "_parentRunId": parent}
        settlement = deliver(job_name=NAME, job_id=f"child-w-{tenant}", data=data)
        assert isinstance(settlement, Complete)
    runs = {run.tenant_id: run for run in JobRun.objects.all()}
    assert (runs["a"].status, runs["a"].result) == ("completed", "a: {'n': 1}")
    skipped = runs["closed"]
    assert (skipped.status, skipped.final, skipped.result, skipped.error) == (
        "skipped", True, None, "",
    )  # fmt: skip
    assert skipped.reason == "the tenant is no longer active"
    assert (skipped.attempt, skipped.start, skipped.payload) == (1, 1, {"n": 1})
    assert skipped.finished_at is not None
    assert {str(run.parent) for run in runs.values()} == {parent}


def test_tenants_that_cannot_be_asked_are_a_failed_attempt(
    deliver: Deliver, settings: Settings
) -> None:
    """It may pass: a child is neither skipped nor run on a guess."""

    def fails() -> list[str]:
        raise OSError("the directory is away")

    settings.KUMIKO = {**settings.KUMIKO, "TENANTS": fails}
    data = {"_tenantId": "a"}
    assert isinstance(deliver(job_name=NAME, job_id="child-w-a", data=data), Retry)
    assert JobRun.objects.get().error == "OSError: the directory is away"
    assert isinstance(deliver(), Retry)


def test_the_wrapper_is_on_record_before_a_child_names_it(
    deliver: Deliver, tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P43: a worker that is killed then leaves no child whose parent nobody has seen."""
    seen: list[str] = []
    add = fan_out_module.add_children

    def spy(fan_out: FanOut, ids: Any, tell: Any) -> Any:
        assert fan_out.meta.parent_run is not None
        seen.append(JobRun.objects.get(id=fan_out.meta.parent_run).status)
        return add(fan_out, ids, tell)

    monkeypatch.setattr(per_tenant_module, "add_children", spy)
    assert deliver() == counted(2, 2, 0)
    assert seen == ["running"]
