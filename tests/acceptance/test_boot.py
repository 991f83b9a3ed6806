"""Gates and boot jobs in real processes: exit codes, replicas that start together."""

from __future__ import annotations

import time

import pytest

from kumiko_django.history.models import JobRun
from kumiko_django.worker.exit_codes import ExitCode
from tests.app.jobs import record
from tests.app.models import Effect
from tests.helpers.fixtures import QueueStateFactory, RunJobsFactory
from tests.integration.boot import SETTINGS

BOOT = {"DJANGO_SETTINGS_MODULE": SETTINGS}
SEED_ID = "boot-bootapp-job-seed"


@pytest.mark.once
@pytest.mark.parametrize(("task", "error"), [("fail", "LookupError"), ("exit", "SystemExit: 0")])
def test_a_failing_gate_is_told_by_the_exit_code(
    task: str, error: str, runjobs: RunJobsFactory, queue_state: QueueStateFactory
) -> None:
    """B109, B110, B111, P59: nothing queued or consumed; a thread that it left holds nobody."""
    queued = record.dispatch({}, tenant_id="acme")
    began = time.monotonic()
    worker = runjobs("worker", env={**BOOT, "KUMIKO_TEST_GATE": task}, ready=False)
    assert worker.wait(40) == ExitCode.GATE_FAILED, worker.output()
    assert time.monotonic() - began < 30, "it waits neither for the thread nor for anything else"
    said = worker.output()
    assert "The boot gate bootapp:job:check-schema failed, so nothing is consumed" in said
    assert error in said
    assert "consuming lane" not in said
    assert "in check_schema" in said
    state = queue_state("worker")
    assert state.wait == [queued.job_id]
    assert not state.client.exists(state.key("repeat"), state.key("kumiko-boot-enqueued"))
    run = JobRun.objects.get(job_name="bootapp:job:check-schema")
    assert (run.status, run.final) == ("failed", True)


def test_replicas_that_start_together(
    runjobs: RunJobsFactory, queue_state: QueueStateFactory
) -> None:
    """B227, P60, P62: one boot job; the gate once for each of them, and never twice at a time."""
    workers = [runjobs("worker", "--drain", env=BOOT, ready=False) for _ in range(3)]
    for worker in workers:
        assert worker.wait(60) == ExitCode.OK, worker.output()
    assert Effect.objects.filter(key="seed").count() == 1
    gates = Effect.objects.filter(key__startswith="gate-").order_by("id")
    assert [effect.key for effect in gates] == ["gate-begin", "gate-end"] * 3
    runs = JobRun.objects.filter(job_name="bootapp:job:check-schema")
    assert [run.status for run in runs] == ["completed"] * 3
    assert len({run.worker for run in runs}) == 3
    (seeded,) = JobRun.objects.filter(queue_job_id=SEED_ID)
    assert min(run.finished_at for run in runs if run.finished_at) < seeded.started_at
    assert queue_state("worker").completed == [SEED_ID]
