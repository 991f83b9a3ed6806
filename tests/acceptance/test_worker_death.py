"""Workers that die: killed, frozen, killed by a job (user-needs 8-11, bullmq-python 1.9)."""

from __future__ import annotations

from pytest_django import Settings

from kumiko_django.history.models import JobRun
from tests.app.jobs import kills_itself, record, sleepy, sleepy_async
from tests.app.models import Effect
from tests.helpers.fixtures import QueueStateFactory, RunJobsFactory
from tests.helpers.waiting import wait_until
from tests.integration.worker.host_thread import ended_runs


def test_a_killed_workers_jobs_run_elsewhere(
    runjobs: RunJobsFactory, settings: Settings, queue_state: QueueStateFactory
) -> None:
    """Must hold; P30, user-needs 10: attempts intact, the first row lost, none left running."""
    settings.KUMIKO = {**settings.KUMIKO, "LOCK_SECONDS": 1.0}
    killed = runjobs("worker")
    ids = [
        job.dispatch({"seconds": 3}, tenant_id="globex").job_id for job in (sleepy, sleepy_async)
    ]
    wait_until(
        lambda: JobRun.objects.filter(status="running").count() == 2,
        description="both are on record",
    )
    wait_until(lambda: Effect.objects.count() == 2, description="both handlers have begun")
    killed.kill()  # first: a start may take longer than the jobs
    survivor = runjobs("worker")
    for job_id in ids:
        runs = ended_runs(job_id, 2, timeout=25)
        assert [(run.status, run.final, run.attempt, run.start) for run in runs] == [
            ("lost", False, 1, 1),
            ("completed", True, 1, 2),
        ]
        assert {run.tenant_id for run in runs} == {"globex"}
        assert runs[0].reason == "the worker died or lost touch with the queue"
        wait_until(lambda: job_id in queue_state().completed, description="it is completed")  # noqa: B023
        stored = queue_state().job(job_id)
        assert (stored.attempts_made, stored.attempts_started) == (1, 2)
    assert not JobRun.objects.filter(status="running").exists()
    assert "lost its worker and is queued again" in survivor.output()


def test_a_job_that_kills_its_worker_three_times_still_completes(
    runjobs: RunJobsFactory, settings: Settings
) -> None:
    """bullmq-python 1.9: losing a worker uses no attempt; its neighbours run again too."""
    settings.KUMIKO = {**settings.KUMIKO, "LOCK_SECONDS": 1.0}
    workers = [runjobs("worker", ready=False) for _ in range(4)]
    for worker in workers:
        worker.wait_ready()
    neighbours = [sleepy.dispatch({"seconds": 1}, tenant_id="acme").job_id for _ in range(3)]
    job_id = kills_itself.dispatch({"times": 3}, tenant_id="acme").job_id
    runs = ended_runs(job_id, 4, timeout=40)
    assert [(run.status, run.attempt, run.start) for run in runs] == [
        ("lost", 1, 1),
        ("lost", 1, 2),
        ("lost", 1, 3),
        ("completed", 1, 4),
    ]
    for neighbour in neighbours:
        # A neighbour that shared its last worker with the job runs a second longer than that did.
        wait_until(
            JobRun.objects.filter(queue_job_id=neighbour, status="completed").exists,
            description="a neighbour is completed", timeout=20,
        )  # fmt: skip
    assert not JobRun.objects.filter(status="running").exists()
    wait_until(
        lambda: sum(worker.running for worker in workers) == 1, description="three were killed"
    )


def test_a_worker_that_was_frozen_comes_back_and_overwrites_nothing(
    runjobs: RunJobsFactory, settings: Settings, queue_state: QueueStateFactory
) -> None:
    """P78, user-needs 16: paused for longer than its locks, as a laptop or a busy host does it."""
    settings.KUMIKO = {**settings.KUMIKO, "LOCK_SECONDS": 1.0}
    frozen = runjobs("worker")
    job_id = sleepy.dispatch({"seconds": 1.5}, tenant_id="acme").job_id
    wait_until(lambda: JobRun.objects.exists(), description="it is on record")
    frozen.freeze()
    runjobs("worker")
    runs = ended_runs(job_id, 2, timeout=20)
    assert [(run.status, run.start) for run in runs] == [("lost", 1), ("completed", 2)]
    frozen.thaw()
    frozen.wait_output("its end here is not recorded|lost its lock", timeout=15)
    assert [run.status for run in ended_runs(job_id, 2)] == ["lost", "completed"]
    good = [record.dispatch({"key": "good"}, tenant_id="acme").job_id for _ in range(4)]
    assert {ended_runs(good_id)[0].status for good_id in good} == {"completed"}
    assert frozen.running
    wait_until(lambda: queue_state().pending() == 0, description="nothing is left in the queue")
