"""Retries: how many, when, and with what (B079-B089, user-needs 35)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from kumiko_django import Backoff, JobContext, Unrecoverable, dispatch
from kumiko_django.history.models import JobRun
from tests.app.jobs import flaky, flaky_async
from tests.app.models import Effect
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.waiting import wait_until
from tests.integration.worker.host_thread import (
    Define,
    StartHost,
    add_raw,
    ended_run,
    ended_runs,
    found,
)

pytestmark = pytest.mark.once

SLOW = 1.0
"""What a busy machine may add to a pause, in seconds."""


def always(payload: dict[str, Any], ctx: JobContext) -> None:
    raise ValueError(f"attempt {ctx.attempt}")


def gaps_of(runs: list[JobRun]) -> list[float]:
    """The pauses between the end of a run and the start of the next, in seconds."""
    return [
        (later.started_at - earlier.finished_at).total_seconds()
        for earlier, later in pairwise(runs)
        if earlier.finished_at is not None
    ]


def test_measured_pauses_are_those_that_were_asked_for(host: StartHost, define: Define) -> None:
    """user-needs 35, P36: fixed, doubled, with a ceiling, with jitter; in parallel, measured."""
    backoffs = {
        "fixed": Backoff.fixed(0.5),
        "doubled": Backoff.exponential(0.3),
        "ceiling": Backoff.exponential(0.3, max_seconds=0.5),
        "jitter": Backoff.fixed(1.0, jitter=0.4),
        "jitter-ceiling": Backoff.exponential(0.3, jitter=0.2, max_seconds=0.4),
    }
    expected = {
        "fixed": [(0.5, 0.5)] * 3,
        "doubled": [(0.3, 0.3), (0.6, 0.6), (1.2, 1.2)],
        "ceiling": [(0.3, 0.3), (0.5, 0.5), (0.5, 0.5)],
        "jitter": [(0.6, 1.4)] * 3,
        "jitter-ceiling": [(0.24, 0.36), (0.4, 0.4), (0.4, 0.4)],
    }
    jobs = {
        name: define(always, name=name, retries=3, backoff=backoff)
        for name, backoff in backoffs.items()
    }
    host("worker", concurrency=10)
    ids = {name: dispatch(job, tenant_id="acme").job_id for name, job in jobs.items()}
    measured = {name: gaps_of(ended_runs(job_id, 4, timeout=30)) for name, job_id in ids.items()}
    faults = {
        name: gaps
        for name, gaps in measured.items()
        if len(gaps) != 3
        or not all(
            low - 0.02 <= gap <= high + SLOW
            for gap, (low, high) in zip(gaps, expected[name], strict=True)
        )
    }
    assert not faults, measured
    assert len({round(gap, 2) for gap in measured["jitter"]}) > 1, "jitter varies"


def test_an_attempt_is_a_row_and_the_queue_counts_the_same(
    host: StartHost, queue_state: QueueStateFactory
) -> None:
    """B079, B082: two failures, then success; sync and async."""
    host("worker")
    ids = [job.dispatch({"fail_times": 2}, tenant_id="acme").job_id for job in (flaky, flaky_async)]
    for job_id in ids:
        runs = ended_runs(job_id, 3)
        assert [(r.attempt, r.start, r.status, r.final, r.max_attempts) for r in runs] == [
            (1, 1, "failed", False, 4),
            (2, 2, "failed", False, 4),
            (3, 3, "completed", True, 4),
        ]
        assert runs[2].result == 3
        assert len({run.queue_created_at for run in runs}) == 1
        wait_until(lambda: job_id in queue_state().completed, description="it is completed")  # noqa: B023
        stored = queue_state().job(job_id)
        assert (stored.attempts_made, stored.attempts_started, stored.returned) == (3, 3, 3)
        assert len(stored.stacktrace) == 1, "bullmq-python 1.19: they do not pile up"


def test_every_attempt_sees_the_same_data(host: StartHost, define: Define) -> None:
    """B230: payload, tenant, user and correlation; also what the handler did to its payload."""
    seen: list[Any] = []

    def look(payload: dict[str, Any], ctx: JobContext) -> None:
        user = ctx.triggered_by
        seen.append((dict(payload), ctx.tenant_id, user and user.id, ctx.correlation_id))
        payload.clear()
        raise ValueError("again")

    job = define(look, retries=2, backoff=Backoff.fixed(0.05))
    host("worker")
    dispatched = dispatch(job, {"n": 1}, tenant_id="acme", triggered_by="user-7")
    runs = ended_runs(dispatched.job_id, 3)
    assert len(seen) == 3
    assert seen[0][:3] == ({"n": 1}, "acme", "user-7")
    # Without a chain to inherit each run begins its own; what the job carries is the same.
    assert [entry[:3] for entry in seen] == [seen[0][:3]] * 3
    assert {found(run.payload)["n"] for run in runs} == {1}


def test_an_inherited_correlation_is_the_same_in_all_attempts(
    host: StartHost, queue_prefix: str, redis_url: str
) -> None:
    """B230."""
    data = {"_tenantId": "acme", "_correlationId": "chain-1", "fail_times": 1}
    (job_id,) = add_raw(
        redis_url,
        f"{queue_prefix}-worker",
        [("testapp:job:flaky", data, {"attempts": 2, "backoff": 50})],
    )
    host("worker")
    assert [run.correlation_id for run in ended_runs(job_id, 2)] == ["chain-1", "chain-1"]


def test_unrecoverable_ends_all_retries(host: StartHost, define: Define) -> None:
    """B086: by its own class and by subclasses; the attempt's own count stays (P29)."""

    class Gone(Unrecoverable):
        pass

    finals: list[bool] = []

    def fails(payload: dict[str, Any], ctx: JobContext) -> None:
        finals.append(ctx.final_attempt)
        raise Gone("no use")

    job = define(fails, retries=5, backoff=Backoff.fixed(0.05))
    host("worker")
    run = ended_run(dispatch(job, tenant_id="acme").job_id)
    assert (run.final, run.attempt, run.max_attempts, run.error) == (True, 1, 6, "Gone: no use")
    assert finals == [False]


def test_the_stored_attempts_count_not_those_of_today(
    host: StartHost, queue_prefix: str, redis_url: str
) -> None:
    """B084, B085, P27: queued with two attempts while the definition says four, and the other
    way."""
    ids = add_raw(
        redis_url,
        f"{queue_prefix}-worker",
        [
            (
                "testapp:job:flaky",
                {"_tenantId": "acme", "fail_times": 9},
                {"attempts": 2, "backoff": 20},
            ),
            ("testapp:job:always-fails", {"_tenantId": "acme"}, {"attempts": 2, "backoff": 20}),
        ],
    )
    host("worker")
    for job_id in ids:
        runs = ended_runs(job_id, 2)
        assert [(run.attempt, run.final, run.max_attempts) for run in runs] == [
            (1, False, 2),
            (2, True, 2),
        ]
    effects = Effect.objects.filter(job_id=ids[0], key="attempt")
    assert [found(effect.value)["final_attempt"] for effect in effects] == [False, True]


def test_a_retry_of_high_priority_goes_to_the_front(
    host: StartHost, define: Define, queue_state: QueueStateFactory
) -> None:
    """B081: the options are the same at every attempt."""
    order: list[str] = []

    def fails_once(payload: dict[str, Any], ctx: JobContext) -> None:
        order.append(f"{payload['name']}{ctx.attempt}")
        if ctx.attempt == 1 and payload["name"] == "high":
            raise ValueError("again")

    job = define(fails_once, retries=1, backoff=Backoff.fixed(0.001))
    for name in ("a", "b", "c"):
        dispatch(job, {"name": name}, tenant_id="acme")
    last = dispatch(job, {"name": "high"}, tenant_id="acme", priority="high")
    host("worker", concurrency=1)
    ended_runs(last.job_id, 2)
    wait_until(lambda: len(order) == 5, description="all have run")
    assert order[0] == "high1"
