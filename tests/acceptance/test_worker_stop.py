"""Stopping real processes with real signals (B215, P88, user-needs 15 and 45)."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest
from pytest_django import Settings

from kumiko_django import dispatch
from kumiko_django.history.models import JobRun
from kumiko_django.worker.exit_codes import ExitCode
from tests.app.jobs import blocks_loop, hangs_once, record, sleepy, sleepy_async
from tests.app.models import Effect
from tests.helpers.fixtures import QueueStateFactory, RunJobsFactory
from tests.helpers.processes import RunJobs
from tests.helpers.waiting import wait_until
from tests.integration.worker.extra import SETTINGS
from tests.integration.worker.host_thread import ended_run, ended_runs
from tests.integration.worker.raw import add_extra


def begun(*job_ids: str) -> None:
    """Wait until the handlers of these jobs have left their first effect."""
    wait_until(
        lambda: Effect.objects.filter(key="begin", job_id__in=job_ids).count() >= len(job_ids),
        description="the handlers have begun",
        timeout=20,
    )


def end_of(worker: RunJobs, timeout: float = 30) -> tuple[int, float]:
    """The exit code, and how many seconds it took to end from now."""
    began = time.monotonic()
    return worker.wait(timeout), time.monotonic() - began


@pytest.mark.once
def test_an_idle_worker_stops_at_once(runjobs: RunJobsFactory) -> None:
    """Both signals, one lane and both lanes."""
    workers = [runjobs("worker", ready=False), runjobs("all", ready=False)]
    for worker in workers:
        worker.wait_ready()
    for worker, number in zip(workers, (signal.SIGTERM, signal.SIGINT), strict=True):
        worker.signal(number)
        code, seconds = end_of(worker)
        assert (code, seconds < 2) == (ExitCode.OK, True), (seconds, worker.output())
        assert f"{number.name}: taking no more jobs" in worker.output()
        assert "stopped" in worker.output()
        assert "Traceback" not in worker.output()


def test_jobs_longer_than_their_lock_finish_once(
    runjobs: RunJobsFactory, settings: Settings, queue_state: QueueStateFactory
) -> None:
    """Must hold; bullmq-python 1.2, user-needs 15: beside a worker that would take them."""
    settings.KUMIKO = {**settings.KUMIKO, "LOCK_SECONDS": 1.0}
    stopping = runjobs("worker")
    ids = [job.dispatch({"seconds": 4}, tenant_id="acme").job_id for job in (sleepy, sleepy_async)]
    begun(*ids)
    waiting = runjobs("worker")
    stopping.terminate()
    stopping.wait_output("taking no more jobs")
    after = record.dispatch({"key": "after"}, tenant_id="acme")
    assert stopping.wait(20) == ExitCode.OK, stopping.output()
    assert ended_run(after.job_id).worker != ended_run(ids[0]).worker
    for job_id in ids:
        (run,) = ended_runs(job_id)
        assert (run.status, run.attempt, run.start, run.result) == ("completed", 1, 1, "slept")
        effects = Effect.objects.filter(job_id=job_id).values_list("key", "pid")
        assert list(effects) == [("begin", stopping.pid), ("end", stopping.pid)]
        assert queue_state().job(job_id).attempts_started == 1
    done = {*ids, after.job_id}
    wait_until(lambda: set(queue_state().completed) == done, description="all are completed")
    assert waiting.running


def test_what_does_not_end_within_the_grace_is_given_back(
    runjobs: RunJobsFactory, settings: Settings, queue_state: QueueStateFactory
) -> None:
    """P88, user-needs 45: sync, async, deaf to cancellation, in a thread of a pool: the process
    ends all the same, with code 0, and each job runs elsewhere, no attempt used."""
    extra = {"DJANGO_SETTINGS_MODULE": SETTINGS}
    first = runjobs("worker", concurrency=8, grace=1, env=extra)
    ids = [job.dispatch({"seconds": 6}, tenant_id="acme").job_id for job in (sleepy, sleepy_async)]
    ids += add_extra(
        settings,
        ("stubborn", {"seconds": 6}),
        ("waits-for-a-thread", {"seconds": 6}),
        attempts=3,
    )
    begun(*ids)
    Effect.objects.all().delete()
    first.terminate()
    code, seconds = end_of(first)
    assert code == ExitCode.OK, first.output()
    assert 1 <= seconds < 6, (seconds, first.output())
    assert "Not ended within 1 s and given back to the queue: 4" in first.output()
    assert set(queue_state().wait) == set(ids)
    runjobs("worker", concurrency=8, env=extra)
    for job_id in ids:
        runs = ended_runs(job_id, 2, timeout=25)
        assert [(run.status, run.attempt, run.start) for run in runs] == [
            ("interrupted", 1, 1),
            ("completed", 1, 2),
        ]
    assert {effect.pid for effect in Effect.objects.filter(key="end")} != {first.pid}
    assert Effect.objects.filter(key="end").count() == 4
    assert JobRun.objects.filter(status="running").count() == 0


@pytest.mark.once
def test_a_second_signal_leaves_at_once(
    runjobs: RunJobsFactory, queue_state: QueueStateFactory
) -> None:
    """B215: also while a handler blocks the event loop, which could not react to it."""
    workers: list[tuple[RunJobs, str]] = []
    for job in (sleepy, blocks_loop):
        worker = runjobs("worker", concurrency=1)
        job_id = job.dispatch({"seconds": 20}, tenant_id="acme").job_id
        begun(job_id)
        workers.append((worker, job_id))
    for (worker, job_id), second in zip(workers, (signal.SIGTERM, signal.SIGINT), strict=True):
        worker.terminate()
        worker.wait_output("taking no more jobs")
        worker.signal(second)
        code, seconds = end_of(worker)
        assert (code, seconds < 2) == (ExitCode.FORCED, True), (seconds, worker.output())
        assert f"{second.name} again: leaving" in worker.output()
        assert job_id in queue_state().active, "left to the queue, which hands it out again"


@pytest.mark.once
def test_a_thread_that_a_handler_let_go_of_does_not_keep_the_process(
    runjobs: RunJobsFactory, settings: Settings
) -> None:
    """Python waits for the threads of its pools; a stopped worker must not."""
    worker = runjobs("worker", env={"DJANGO_SETTINGS_MODULE": SETTINGS})
    (job_id,) = add_extra(settings, ("lets-go-of-a-thread", {"seconds": 60}))
    assert ended_run(job_id).result == "let go"
    worker.terminate()
    code, seconds = end_of(worker)
    assert (code, seconds < 8) == (ExitCode.OK, True), (seconds, worker.output())
    assert "leaving without it" in worker.output()


@pytest.mark.once
def test_handlers_that_raise_what_ends_processes_end_none(
    runjobs: RunJobsFactory, settings: Settings
) -> None:
    """bullmq-python 1.3: SystemExit, KeyboardInterrupt, CancelledError, in thread and on loop."""
    worker = runjobs("worker", env={"DJANGO_SETTINGS_MODULE": SETTINGS})
    names = {
        "interrupts": "KeyboardInterrupt: on purpose",
        "interrupts-async": "KeyboardInterrupt: on purpose",
        "exits-async": "SystemExit: 3",
    }
    ids: dict[str, Any] = dict(
        zip(add_extra(settings, *((name, {}) for name in names)), names.values(), strict=True)
    )
    for job in ("exits", "cancel-error"):
        ids[dispatch(f"testapp:job:{job}", {}, tenant_id="acme").job_id] = {
            "exits": "SystemExit: 3",
            "cancel-error": "CancelledError: cancelled on purpose",
        }[job]
    for job_id, error in ids.items():
        run = ended_run(job_id)
        assert (run.status, run.final, run.error) == ("failed", True, error)
    good = record.dispatch({"key": "good"}, tenant_id="acme")
    assert ended_run(good.job_id).status == "completed"
    assert worker.running


def test_a_handler_that_does_not_end_after_its_timeout_retires_its_process(
    runjobs: RunJobsFactory, settings: Settings
) -> None:
    """P23, design 4: an exit code for the supervisor; the retry begins in another process."""
    settings.KUMIKO = {**settings.KUMIKO, "LOCK_SECONDS": 1.0}
    stuck = runjobs("worker", concurrency=2, grace=1.5)
    job_id = hangs_once.dispatch({"seconds": 60}, tenant_id="acme").job_id
    begun(job_id)
    neighbour = sleepy.dispatch({"seconds": 1}, tenant_id="acme").job_id
    code, seconds = end_of(stuck)
    assert (code, seconds < 20) == (ExitCode.RETIRED, True), stuck.output()
    assert "A handler does not end after its timeout" in stuck.output()
    runjobs("worker")
    first, second = ended_runs(job_id, 2, timeout=20)
    assert (first.status, first.attempt, first.error.split(":")[0]) == ("failed", 1, "TimedOut")
    assert (second.status, second.attempt, second.result) == ("completed", 2, "done")
    assert first.worker != second.worker
    assert ended_runs(neighbour)[-1].status == "completed"
