"""The stall budget, and the queue's own failures (P30, user-needs 11).

bullmq-python 1.9: the queue's script fails a job at its second loss, and exempts scheduled ones.
"""

from __future__ import annotations

from typing import Any

import pytest
import redis
from pytest_django import Settings

from kumiko_django import JobContext, dispatch, signals
from kumiko_django.history.models import JobRun
from kumiko_django.types.runinfo import RunInfo
from tests.app.jobs import kills_itself, record
from tests.app.models import Effect
from tests.helpers.fixtures import QueueStateFactory, RunJobsFactory
from tests.helpers.waiting import wait_until
from tests.integration.worker.host_thread import (
    Define,
    StartHost,
    ended_run,
    ended_runs,
    found,
)
from tests.integration.worker.test_deferring import listening

POISON = "its workers died, or lost touch with the queue, {} times while it ran"


def test_a_job_that_kills_its_workers_is_quarantined(
    runjobs: RunJobsFactory, settings: Settings, queue_state: QueueStateFactory
) -> None:
    """user-needs 11: after as many workers as the budget says, with its own status; kept."""
    settings.KUMIKO = {**settings.KUMIKO, "LOCK_SECONDS": 1.0, "STALL_BUDGET": 2}
    workers = [runjobs("worker", concurrency=1, ready=False) for _ in range(3)]
    for worker in workers:
        worker.wait_ready()
    job_id = kills_itself.dispatch({"times": 99}, tenant_id="acme").job_id
    runs = ended_runs(job_id, 3, timeout=40)
    assert [(run.status, run.attempt, run.start, run.final) for run in runs] == [
        ("lost", 1, 1, False),
        ("lost", 1, 2, False),
        ("quarantined", 1, 3, True),
    ]
    assert POISON.format(2) in runs[2].error
    assert runs[2].payload == {"times": 99}, "what it takes to look into it, or to send it again"
    assert Effect.objects.filter(job_id=job_id, key="killed").count() == 2
    wait_until(lambda: job_id in queue_state().failed, description="it is findable in the queue")
    assert queue_state().job(job_id).failed_reason == runs[2].error
    good = record.dispatch({"key": "good"}, tenant_id="acme").job_id
    assert ended_run(good).status == "completed"
    assert sum(worker.running for worker in workers) == 1
    assert not JobRun.objects.filter(status="running").exists()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        # Counted by our own check.
        ({"stc": "3"}, ("quarantined", POISON.format(3))),
        # By another client, with another budget.
        ({"stc": "2", "defa": "job stalled more than allowable limit"},
         ("failed", "The queue gave the job up: job stalled more than allowable limit.")),
        # Whatever else the queue gives a job up for.
        ({"defa": "child x failed"}, ("failed", "The queue gave the job up: child x failed.")),
        # Below it the job runs.
        ({"stc": "2"}, ("completed", "")),
    ],
)  # fmt: skip
def test_what_the_queue_says_of_a_job_is_on_record(
    fields: dict[str, str],
    expected: tuple[str, str],
    host: StartHost,
    define: Define,
    raw_redis: redis.Redis,
    queue_state: QueueStateFactory,
    settings: Settings,
) -> None:
    """P30, bullmq-python 1.9: its handler is not called, and it is told as failed (B221)."""
    settings.KUMIKO = {**settings.KUMIKO, "STALL_BUDGET": 3}
    calls: list[int] = []
    told: list[tuple[bool, str | None]] = []

    def counts(payload: dict[str, Any], ctx: JobContext) -> None:
        calls.append(1)

    def note(sender: Any, run: RunInfo, **_: Any) -> None:
        told.append((run.final, run.error))

    job = define(counts, retries=5)
    job_id = dispatch(job, tenant_id="acme", delay=0.2).job_id
    for name, value in fields.items():
        raw_redis.hset(queue_state().key(job_id), name, value)
    with listening(signals.job_failed, note):
        host("worker")
        status, error = expected
        wait_until(
            lambda: JobRun.objects.filter(queue_job_id=job_id, final=True).exists(),
            description="it has come to its end",
        )
        run = found(JobRun.objects.filter(queue_job_id=job_id).order_by("start", "id").last())
        assert (run.status, run.attempt, run.max_attempts) == (status, 1, 6)
        assert error in run.error
        assert len(calls) == (status == "completed")
        if status != "completed":
            wait_until(lambda: told, description="it has been told")
            assert told == [(True, run.error)]
            wait_until(lambda: job_id in queue_state().failed, description="it has failed")


def test_who_retries_a_quarantined_job_by_hand_gets_a_new_budget(
    host: StartHost,
    define: Define,
    raw_redis: redis.Redis,
    queue_state: QueueStateFactory,
) -> None:
    """It would be quarantined at once, without a try."""

    def ends(payload: dict[str, Any], ctx: JobContext) -> str:
        return "mended"

    job = define(ends)
    job_id = dispatch(job, tenant_id="acme", delay=0.1).job_id
    raw_redis.hset(queue_state().key(job_id), "stc", 10)
    host("worker")
    wait_until(lambda: job_id in queue_state().failed, description="it is quarantined")
    assert queue_state().job(job_id).stalled == 0
    # As other clients do it.
    raw_redis.zrem(queue_state().key("failed"), job_id)
    raw_redis.lpush(queue_state().key("wait"), job_id)
    raw_redis.zadd(queue_state().key("marker"), {"0": 0})
    wait_until(lambda: job_id in queue_state().completed, description="it is completed")
