"""One run: its steps in order, what is true around the handler, what the queue is told."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from kumiko_django import SYSTEM, JobContext, Unrecoverable, current_tenant_id
from kumiko_django.broker.delivery import Complete, Fail, GiveBack, Retry
from kumiko_django.definitions.registry import registry
from kumiko_django.history.models import JobRun
from kumiko_django.history.recorder import Recorder
from kumiko_django.run import runner as runner_module
from kumiko_django.types import ambient
from kumiko_django.types.origin import WriteOrigin
from tests.unit.run.deliveries import NAME, RunOne, delivery

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_queue_is_told_what_became_of_the_run(
    run_one: RunOne, caplog: pytest.LogCaptureFixture
) -> None:
    """B079, B085, B086: complete, retry, fail; and the process log names job and tenant (B130)."""
    caplog.set_level("INFO", "kumiko_django")

    def returns(payload: Any, ctx: JobContext) -> Any:
        return {"n": 1}

    assert run_one(returns) == Complete({"n": 1})
    run = JobRun.objects.get()
    assert (run.status, run.final, run.result, run.reason) == ("completed", True, {"n": 1}, "")
    assert f"Job {NAME} ({run.queue_job_id}) of tenant {run.tenant_id} completed" in caplog.text


@pytest.mark.parametrize(
    ("error", "attempt", "expected", "final"),
    [
        (ValueError("again"), 1, Retry, False),
        (ValueError("over"), 3, Fail, True),
        (Unrecoverable("no"), 1, Fail, True),
        (SystemExit(1), 1, Retry, False),
        (asyncio.CancelledError(), 3, Fail, True),
    ],
)
def test_failures(
    error: BaseException, attempt: int, expected: type, final: bool, run_one: RunOne
) -> None:
    def fails(payload: Any, ctx: JobContext) -> None:
        raise error

    settlement = run_one(fails, delivery(job_name=NAME, attempt=attempt, max_attempts=3))
    assert isinstance(settlement, expected)
    run = JobRun.objects.get()
    assert (run.status, run.final, run.attempt, run.max_attempts) == ("failed", final, attempt, 3)
    assert run.error.startswith(type(error).__name__)
    assert isinstance(settlement, Retry | Fail)
    assert (settlement.error, settlement.traceback) == (run.error, run.traceback)
    assert len(run.fingerprint) == 40
    assert [(line.level, line.message) for line in run.logs.all()] == [("error", run.error)], "B129"


def test_a_failed_attempt_is_in_the_process_log(
    run_one: RunOne, caplog: pytest.LogCaptureFixture
) -> None:
    """B130: job, id, attempt, whether it was the last, and the error."""

    def fails(payload: Any, ctx: JobContext) -> None:
        raise ValueError("not today")

    run_one(fails, delivery(job_name=NAME, job_id="j-1", attempt=2, max_attempts=3))
    (entry,) = [one for one in caplog.records if "failed on attempt" in one.message]
    assert f"Job {NAME} (j-1)" in entry.message
    assert "failed on attempt 2 of 3" in entry.message
    assert entry.message.endswith("ValueError: not today")
    assert (entry.levelname, vars(entry)["final"]) == ("WARNING", False)


def test_a_run_that_is_broken_off_is_given_back(run_one: RunOne) -> None:
    settlement = run_one(lambda payload, ctx: 1, interrupt=True)
    assert settlement == GiveBack()
    run = JobRun.objects.get()
    assert (run.status, run.final, run.reason) == ("interrupted", False, "the worker was stopped")
    assert run.finished_at is not None


def test_what_is_ambient_in_the_handler_and_gone_outside(run_one: RunOne) -> None:
    """B017, B077, B088, B134, B135, B136, B172, B230: set for the run, for sync and async handlers
    alike."""
    seen: list[dict[str, Any]] = []
    names = ("scope", "user_id", "request_id", "correlation_id", "write_origin", "trace",
             "handler", "feature")  # fmt: skip

    def look(payload: Any, ctx: JobContext) -> None:
        seen.append({name: getattr(ambient, name).get() for name in names})
        seen[-1]["ctx"] = ctx
        assert current_tenant_id() == "acme"

    data = {
        "_tenantId": "acme",
        "_triggeredById": "user-7",
        "_correlationId": "chain-1",
        "_writeOrigin": {"root": "anonymous", "viaJob": "testapp:job:before"},
        "_traceContext": {"traceId": "t" * 32, "spanId": "s" * 16},
        "_triggerName": "order.created",
        "_triggerEvent": {"id": "e1", "headers": {"n": 1}},
        "n": 1,
    }
    assert run_one(look, delivery(job_name=NAME, data=data)) == Complete(None)
    (found,) = seen
    ctx = found["ctx"]
    run = JobRun.objects.get()
    assert (found["scope"].tenant_id, found["scope"].mode) == ("acme", "tenant")
    assert (found["user_id"], found["correlation_id"]) == ("user-7", "chain-1")
    assert found["write_origin"] == WriteOrigin("anonymous", NAME)
    assert (found["handler"], found["feature"]) == (NAME, "testapp")
    assert (found["trace"].trace_id, found["trace"].span_id) == ("t" * 32, "s" * 16)
    assert found["request_id"] == ctx.request_id != ctx.correlation_id
    assert (ctx.triggered_by.id, ctx.triggered_by.tenant_id) == ("user-7", "acme")
    assert (ctx.trigger_name, ctx.trigger_event.id) == ("order.created", "e1")
    assert (run.triggered_by_id, run.trigger, run.correlation_id, run.trace_id) == (
        "user-7", "order.created", "chain-1", "t" * 32,
    )  # fmt: skip
    assert run.payload == {"n": 1}
    assert all(getattr(ambient, name).get() is None for name in names)


def test_a_run_without_a_chain_begins_one(run_one: RunOne) -> None:
    """B077, B135, B136, B231: correlation is the run's own request id; the tenant is never
    empty."""
    seen: list[JobContext] = []

    def look(payload: Any, ctx: JobContext) -> None:
        seen.append(ctx)

    run_one(look, delivery(job_name=NAME, data={"_tenantId": "acme"}))
    (first,) = seen
    assert JobRun.objects.get().correlation_id == first.request_id
    assert first.correlation_id == first.request_id
    assert (first.triggered_by, first.trigger_name, first.trigger_event) == (None, None, None)


def test_a_job_of_the_system_runs_in_its_scope(run_one: RunOne) -> None:
    """B231."""
    seen: list[Any] = []

    def look(payload: Any, ctx: JobContext) -> None:
        seen.append((ambient.scope.get(), ctx.tenant_id))

    run_one(look, delivery(job_name=NAME, data={}), tenant="system")
    ((scope, tenant_id),) = seen
    assert (scope.mode, scope.tenant_id, tenant_id) == ("system", SYSTEM, SYSTEM)


def test_the_context_says_what_the_delivery_says(run_one: RunOne) -> None:
    """B082, B087, B126, B158: and the final flag goes by the attempts stored with the job (P27)."""
    seen: list[JobContext] = []

    def look(payload: Any, ctx: JobContext) -> None:
        seen.append(ctx)

    given = delivery(job_name=NAME, job_id="j", attempt=2, max_attempts=2, start=5)
    run_one(look, given, retries=9)
    (ctx,) = seen
    run = JobRun.objects.get()
    assert (ctx.job_name, ctx.job_id, ctx.attempt, ctx.final_attempt) == (NAME, "j", 2, True)
    assert (ctx.run_id, ctx.tenant_id) == (run.id, run.tenant_id)
    assert (run.start, run.worker, run.lane) == (5, "worker-1", "worker")
    assert run.wait_ms is None, "a later start has not waited since its dispatch"
    assert ctx.registry is registry


def test_duration_and_wait_are_measured(run_one: RunOne) -> None:
    """B127: from preparation to the end of the handler."""

    def sleeps(payload: Any, ctx: JobContext) -> None:
        time.sleep(0.12)

    now_ms = round(time.time() * 1000)
    run_one(sleeps, delivery(job_name=NAME, created_at_ms=now_ms - 700, delay_ms=500))
    run = JobRun.objects.get()
    assert 120 <= (run.duration_ms or 0) < 5000
    assert 200 <= (run.wait_ms or 0) < 5000, "counted from the time when it was due"
    assert run.finished_at is not None
    assert run.finished_at > run.started_at


def test_a_payload_is_the_handlers_own(run_one: RunOne) -> None:
    """A handler that changes its payload changes neither the record nor the next attempt."""

    def changes(payload: dict[str, Any], ctx: JobContext) -> None:
        payload["added"] = True
        payload.pop("n")

    data = {"_tenantId": "acme", "n": 1}
    run_one(changes, delivery(job_name=NAME, data=data))
    assert JobRun.objects.get().payload == {"n": 1}
    assert data == {"_tenantId": "acme", "n": 1}


def test_a_changed_payload_of_a_long_run_is_not_what_is_recorded(run_one: RunOne) -> None:
    """The start is written while the handler runs: it must not see the handler's changes."""

    def changes(payload: dict[str, Any], ctx: JobContext) -> None:
        payload["items"].append("added")
        time.sleep(0.3)

    run_one(changes, delivery(job_name=NAME, data={"_tenantId": "acme", "items": [1]}))
    assert JobRun.objects.get().payload == {"items": [1]}


class Strict(BaseModel):
    """A schema with a validator that has a bug."""

    n: int

    @field_validator("n")
    @classmethod
    def check(cls, value: int) -> int:
        raise LookupError("a bug in the validator")


def test_a_validator_with_a_bug_is_a_failure_on_record(run_one: RunOne) -> None:
    """Every run has a row, also one that a fault ends before its handler."""
    given = delivery(job_name=NAME, data={"_tenantId": "acme", "n": 1}, max_attempts=2)
    settlement = run_one(lambda payload, ctx: 1, given, schema=Strict)
    assert isinstance(settlement, Retry | Fail)
    run = JobRun.objects.get()
    assert (run.status, run.tenant_id, run.payload) == ("failed", "acme", {"n": 1})
    assert "a bug in the validator" in run.error


def test_a_fault_of_ours_ends_the_run_on_record(
    run_one: RunOne, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever breaks around the handler: no row stays on running, the queue is told."""

    def broken(value: Any) -> Any:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(runner_module, "keepable", broken)
    settlement = run_one(lambda payload, ctx: 1)
    assert isinstance(settlement, Fail)
    run = JobRun.objects.get()
    assert (run.status, run.error) == ("failed", "RuntimeError: a fault of ours")
    assert "met a fault" in caplog.text


def test_a_record_that_cannot_be_written_changes_no_outcome(
    run_one: RunOne, monkeypatch: pytest.MonkeyPatch, recorder: Recorder,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """P26, P79."""

    def fails(*args: Any, **options: Any) -> Any:
        raise RuntimeError("the recorder's fault")

    monkeypatch.setattr(recorder, "run_ended", fails)
    assert run_one(lambda payload, ctx: {"n": 1}) == Complete({"n": 1})
    assert "is not on record" in caplog.text


def test_a_job_under_an_old_name_is_known_by_its_new_one(run_one: RunOne) -> None:
    """user-needs 7."""
    seen: list[str] = []

    def look(payload: Any, ctx: JobContext) -> None:
        seen.append(ctx.job_name)

    run_one(look, delivery(job_name="testapp:job:old-name"), aliases=("old-name",))
    assert seen == [NAME]
    assert JobRun.objects.get().job_name == NAME
