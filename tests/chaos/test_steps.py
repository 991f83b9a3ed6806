"""SIGKILL between any two steps of a run: what is on record afterwards, exactly (design 8 and 9).

The queue is told first, with the run's record stored beside it in the same step; the history
follows. So a death before that costs the run (``lost``, and the job runs again), and a death after
it costs nothing. Each victim has one job and dies on its way through it (``steps``); then another
worker starts.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import redis

from kumiko_django import dispatch
from kumiko_django.history.models import JobRun, JobRunLog
from tests.chaos import SETTINGS
from tests.chaos.evidence import Evidence, Row
from tests.chaos.jobs import JOBS
from tests.chaos.steps import STEPS
from tests.helpers.fixtures import RunJobsFactory
from tests.helpers.processes import RunJobs
from tests.helpers.waiting import wait_until

LINES = 4
LOST: list[Row] = [("lost", False, 1, 1), ("completed", True, 1, 2)]
ONCE: list[Row] = [("completed", True, 1, 1)]

Start: TypeAlias = Callable[..., RunJobs]


@pytest.fixture
def start(runjobs: RunJobsFactory) -> Start:
    """Start a worker: ``start("fetched")`` one that dies there, ``start()`` a healthy one."""

    def worker(step: str = "", *arguments: str, signal: str = "SIGKILL", **options: Any) -> RunJobs:
        env = {
            "DJANGO_SETTINGS_MODULE": SETTINGS,
            "KUMIKO_TEST_STEP": step,
            "KUMIKO_TEST_STEP_SIGNAL": signal,
            "KUMIKO_TEST_RECOVERY_SECONDS": "0.5",
        }
        options = {"concurrency": 2, "ready": not step, **options}
        return runjobs("worker", *arguments, env=env, **options)

    return worker


@pytest.fixture
def evidence(raw_redis: redis.Redis, queue_prefix: str) -> Evidence:
    return Evidence(raw_redis, queue_prefix)


def send(name: str, **payload: Any) -> str:
    return dispatch(JOBS[name], {"lines": LINES, **payload}, tenant_id="acme").job_id


def wait_killed(victim: RunJobs) -> None:
    assert victim.wait() == -signal.SIGKILL, victim.output()


def wait_stopped(worker: RunJobs) -> None:
    def stopped() -> bool:
        pid, status = os.waitpid(worker.pid, os.WUNTRACED | os.WNOHANG)
        assert pid == 0 or os.WIFSTOPPED(status), f"it ended instead:\n{worker.output()}"
        return pid != 0

    wait_until(stopped, description="the worker stands still", timeout=20)


def lines_of_last_run(job_id: str) -> list[Any]:
    last = JobRun.objects.filter(queue_job_id=job_id).order_by("start").last()
    return list(JobRunLog.objects.filter(run=last).values_list("data", flat=True))


ALL_LINES = [{"number": number} for number in range(1, LINES + 1)]


@pytest.mark.parametrize(
    ("step", "name", "calls"),
    [
        ("fetched", "work", 1),
        ("start-noted", "work-async", 1),
        ("start-written", "work", 1),
        ("handler-returned", "work", 2),
        ("handler-returned", "work-async", 2),
    ],
)
def test_a_death_before_the_queue_is_told_costs_the_run(
    name: str, step: str, calls: int, start: Start, evidence: Evidence
) -> None:
    """P30, design 9: one lost run, written by its worker or by the job's next run."""
    job_id = send(name)
    wait_killed(start(step))
    assert not evidence.unrecorded()
    start()
    evidence.wait_rows(job_id, LOST)
    assert evidence.losses([job_id]) == {job_id: 1}
    assert evidence.calls() == {job_id: calls}
    assert lines_of_last_run(job_id) == ALL_LINES


@pytest.mark.parametrize("ms", [0, 300], ids=["short", "long"])
def test_a_death_in_the_handler_costs_the_run(ms: int, start: Start, evidence: Evidence) -> None:
    """P30: with its start on record (long) or not (short)."""
    job_id = send("work", ms=ms, **({"dies": True} if ms == 0 else {}))
    wait_killed(start("start-written-in-handler") if ms else start(ready=False))
    start()
    evidence.wait_rows(job_id, LOST)
    assert evidence.losses([job_id]) == {job_id: 1}
    assert evidence.calls() == {job_id: 2}


@pytest.mark.parametrize("ms", [0, 300], ids=["short", "long"])
@pytest.mark.parametrize(
    "step", ["queue-told", "settled", "end-noted", "end-before-commit", "end-committed"]
)
def test_a_death_after_the_queue_was_told_costs_nothing(
    step: str, ms: int, start: Start, evidence: Evidence
) -> None:
    """Design 9: the record can be rebuilt from the queue; the handler is not called again.

    A short run is one statement; of a long one the start is on record when its worker dies.
    """
    lines = LINES if ms else 0
    job_id = send("work-async" if ms else "work", ms=ms, lines=lines)
    wait_killed(start(step))
    assert evidence.queue.completed == [job_id]
    (field,) = evidence.unrecorded()
    assert field == f"{job_id}/{evidence.queue.job(job_id).created_at}/1"
    before = ONCE if step == "end-committed" else [("running", False, 1, 1)] if ms else []
    assert evidence.rows(job_id) == before
    start()
    evidence.wait_rows(job_id, ONCE)
    assert evidence.losses([job_id]) == {job_id: 0}
    assert evidence.calls() == {job_id: 1}
    assert lines_of_last_run(job_id) == ALL_LINES[:lines]
    assert JobRun.objects.get().result == lines


# The retry comes so late that its worker is dead by then.
OUTCOMES: dict[str, tuple[list[Row], int]] = {
    "fails-once-much-later": ([("failed", False, 1, 1), ("completed", True, 2, 2)], 2),
    "fails": ([("failed", True, 1, 1)], 1),
}


@pytest.mark.parametrize("step", ["queue-told", "end-before-commit", "end-committed"])
@pytest.mark.parametrize("name", OUTCOMES)
def test_a_failed_attempt_is_on_record_though_its_worker_died(
    name: str, step: str, start: Start, evidence: Evidence
) -> None:
    """Design 9: a retry first writes what the job's former run has left."""
    expected, calls = OUTCOMES[name]
    job_id = send(name)
    wait_killed(start(step))
    assert len(evidence.unrecorded()) == 1
    start()
    evidence.wait_rows(job_id, expected)
    assert evidence.losses([job_id]) == {job_id: 0}
    assert evidence.calls() == {job_id: calls}
    first = JobRun.objects.get(start=1)
    assert first.error.startswith("Refused: ")
    assert "fails_once" in first.traceback or "in fails" in first.traceback


@pytest.mark.parametrize("ms", [0, 150, 300])
def test_a_retry_at_once_does_not_take_the_failed_run_for_lost(
    ms: int, start: Start, evidence: Evidence
) -> None:
    """Design 9: nobody dies here. The first run's end waits for company, and the start of the
    second comes into the same commit; with 150 ms and more the first start is on record by then."""
    ids = [send("fails-once", ms=ms) for _ in range(4)]
    start(concurrency=4)
    for job_id in ids:
        evidence.wait_rows(job_id, OUTCOMES["fails-once-much-later"][0])


@pytest.mark.parametrize("step", ["queue-told", "end-before-commit", "end-committed"])
def test_a_run_given_back_at_a_stop_is_on_record_though_its_worker_died(
    step: str, start: Start, evidence: Evidence
) -> None:
    """P88 and design 9: an interrupted run, no attempt used, none lost."""
    job_id = send("work-async", first_ms=60_000)
    victim = start(step, grace=0)
    wait_until(lambda: evidence.calls(), description="the handler was called", timeout=20)
    victim.terminate()
    wait_killed(victim)
    start()
    evidence.wait_rows(job_id, [("interrupted", False, 1, 1), ("completed", True, 1, 2)])
    assert evidence.losses([job_id]) == {job_id: 0}
    assert evidence.calls() == {job_id: 2}


@pytest.mark.parametrize("step", ["queue-told", "end-committed"])
def test_a_worker_that_stands_by_writes_what_another_left(
    step: str, start: Start, evidence: Evidence
) -> None:
    """Design 9: not only at a start. Frozen meanwhile, so that the job is the victim's."""
    survivor = start()
    survivor.freeze()
    job_id = send("work")
    wait_killed(start(step))
    assert len(evidence.unrecorded()) == 1
    survivor.thaw()
    evidence.wait_rows(job_id, ONCE)
    assert evidence.calls() == {job_id: 1}


def test_a_death_after_all_is_done_changes_nothing(start: Start, evidence: Evidence) -> None:
    """Design 9: written, and dropped from the queue."""
    job_id = send("work")
    wait_killed(start("record-dropped"))
    assert (evidence.rows(job_id), evidence.unrecorded()) == (ONCE, [])
    start("", "--drain").wait()
    assert (evidence.rows(job_id), evidence.calls()) == (ONCE, {job_id: 1})


@pytest.mark.parametrize("step", ["queue-told", "settled", "end-committed", "record-dropped"])
def test_the_next_job_may_be_fetched_with_the_end_of_the_last(
    step: str, start: Start, evidence: Evidence
) -> None:
    """bullmq-python 5: whether it was when the worker dies, the queue says, and so do the rows."""
    first, second = send("work"), send("work")
    wait_killed(start(step, concurrency=1))
    start()
    evidence.wait_all_done(15)
    losses = evidence.losses([first, second])
    assert (evidence.rows(first), losses[first]) == (ONCE, 0)
    assert evidence.rows(second) == (LOST if losses[second] else ONCE)


@pytest.mark.parametrize(
    ("step", "expected", "calls"),
    [("handler-returned", LOST, 2), ("queue-told", ONCE, 1), ("end-committed", ONCE, 1)],
)
def test_a_worker_that_stands_still_between_two_steps_comes_back_and_changes_nothing(
    step: str, expected: list[Row], calls: int, start: Start, evidence: Evidence
) -> None:
    """P78, design 9: another has taken the job up, or written its record, and the late one's word
    is void or known already."""
    job_id = send("work")
    late = start(step, signal="SIGSTOP")
    wait_stopped(late)
    start()
    evidence.wait_rows(job_id, expected)
    late.thaw()
    followers = [send("work", ms=100) for _ in range(4)]
    for follower in followers:
        evidence.wait_rows(follower, ONCE)
    late.terminate()
    assert late.wait() == 0, late.output()
    assert evidence.rows(job_id) == expected
    assert evidence.calls() == {job_id: calls, **dict.fromkeys(followers, 1)}


def test_every_step_is_tried() -> None:
    """The table of steps and these tests name the same."""
    text = Path(__file__).read_text(encoding="utf-8")
    assert not [step for step in STEPS if f'"{step}"' not in text]
