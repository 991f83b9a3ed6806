"""Deferral through a real queue: one run, one row, no attempt used (B193-B203, B240-B242)."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
import redis
from django.dispatch import Signal
from pytest_django import Settings

from kumiko_django import Backoff, JobContext, dispatch, signals
from kumiko_django.history.models import JobRun
from kumiko_django.types.runinfo import RunInfo
from tests.app.jobs import dies_deferred
from tests.helpers.fixtures import QueueStateFactory, RunJobsFactory
from tests.helpers.waiting import wait_until
from tests.integration.worker.host_thread import (
    Define,
    StartHost,
    add_raw,
    ended_runs,
    found,
)

Payload = dict[str, Any]


def final_runs(job_id: str, timeout: float = 15) -> list[JobRun]:
    """Wait until a job has come to its end, and give its runs."""
    wait_until(
        lambda: JobRun.objects.filter(queue_job_id=job_id, final=True).exists(),
        description="it has come to its end",
        timeout=timeout,
    )
    return ended_runs(job_id)


@contextmanager
def listening(signal: Signal, receive: Any) -> Iterator[None]:
    signal.connect(receive)
    try:
        yield
    finally:
        signal.disconnect(receive)


class Waiter:
    """A handler that defers three times, and a receiver that breaks; both note what they see."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []
        self.moments: list[float] = []
        self.statuses: list[tuple[str, bool]] = []

    def __call__(self, payload: Payload, ctx: JobContext) -> Any:
        self.moments.append(time.monotonic())
        user = ctx.triggered_by
        self.seen.append(
            (dict(payload), ctx.run_id, ctx.attempt, ctx.tenant_id, user and user.id,
             ctx.correlation_id, ctx.final_attempt)
        )  # fmt: skip
        ctx.log.info("call", number=len(self.seen))
        if len(self.seen) == 1:
            ctx.about("order-1")
        return ctx.defer(0.3) if len(self.seen) < 4 else len(self.seen)

    def receive(self, sender: Any, run: RunInfo, outcome: Any, **_: Any) -> None:
        row = JobRun.objects.get(id=run.run_id)
        ahead = found(row.resume_at) > dt.datetime.now(dt.UTC) - dt.timedelta(seconds=5)
        self.statuses.append((row.status, ahead))
        assert (run.final, outcome.count, outcome.delay_ms) == (False, len(self.statuses), 300)
        raise RuntimeError("B199: a receiver that raises changes nothing")


def test_three_deferrals_are_one_run(
    host: StartHost, define: Define, queue_state: QueueStateFactory
) -> None:
    """B083, B199, B200, B202, B222, B240, B241, P98: one row, one start, no attempt; all else as it
    was."""
    waiter = Waiter()
    job = define(waiter, name="waiter", retries=2)
    host("worker")
    ends: list[bool] = []

    def ended(run: RunInfo, **_: Any) -> None:
        ends.append(run.final)

    with (
        listening(signals.job_deferred, waiter.receive),
        listening(signals.job_completed, ended),
        listening(signals.job_failed, ended),
    ):
        dispatched = dispatch(job, {"n": 1}, tenant_id="acme", triggered_by="user-7")
        (run,) = final_runs(dispatched.job_id)
        wait_until(lambda: bool(ends), description="its end has been told, after its row")
    assert len(waiter.seen) == 4
    assert ends == [True], "B198: a deferral is no end"
    assert len(set(map(repr, waiter.seen))) == 1, "each call sees the same"
    assert all(later - earlier >= 0.29 for earlier, later in pairwise(waiter.moments))
    assert waiter.statuses == [("deferred", True)] * 3
    assert (run.status, run.attempt, run.start, run.deferrals, run.result, run.resume_at) == (
        "completed", 1, 1, 3, 4, None,
    )  # fmt: skip
    assert (run.id, run.object_ref) == (waiter.seen[0][1], "order-1")
    assert found(run.duration_ms) < 290, "B241: of the last call only"
    wait_until(
        lambda: [line.data for line in run.logs.all()] == [{"number": n} for n in range(1, 5)],
        description="all lines are on record, in their order",
    )
    stored = queue_state().job(dispatched.job_id)
    assert (stored.attempts_made, stored.attempts_started) == (1, 4)
    assert (stored.data["_deferCount"], stored.data["_runStart"]) == (3, 1)
    assert stored.data["_tenantId"] == "acme"
    assert stored.data["_correlationId"] == run.correlation_id == waiter.seen[0][5]


def test_a_retry_after_a_deferral_is_a_run_of_its_own(
    host: StartHost, define: Define, queue_state: QueueStateFactory
) -> None:
    """B197, P99: the counter goes on over the attempts, and the budget is that of the job."""
    calls: list[int] = []

    async def defers_and_fails(payload: Payload, ctx: JobContext) -> Any:
        calls.append(ctx.attempt)
        if calls.count(ctx.attempt) == 1:
            raise ctx.defer(0.05)
        raise ValueError("no")

    job = define(defers_and_fails, retries=2, backoff=Backoff.fixed(0.05), max_defers=2)
    host("worker")
    job_id = dispatch(job, tenant_id="acme").job_id
    runs = final_runs(job_id)
    assert [(run.attempt, run.start, run.status, run.deferrals, run.final) for run in runs] == [
        (1, 1, "failed", 1, False),
        (2, 3, "failed", 1, False),
        (3, 5, "failed", 0, True),
    ]
    assert "deferred 2 times already; max_defers=2" in runs[2].error
    assert calls == [1, 1, 2, 2, 3]
    stored = queue_state().job(job_id)
    assert (stored.attempts_made, stored.data["_deferCount"]) == (3, 2)
    assert not {"_run", "_runStart"} & set(stored.data)


def test_a_lock_that_is_lost_defers_nothing(
    host: StartHost,
    define: Define,
    raw_redis: redis.Redis,
    queue_state: QueueStateFactory,
    settings: Settings,
) -> None:
    """B200, B242, P95: counter, data and move are one step; the loser changes none of them."""
    settings.KUMIKO = {**settings.KUMIKO, "LOCK_SECONDS": 1.0}
    go, began = threading.Event(), threading.Event()

    def waits(payload: Payload, ctx: JobContext) -> Any:
        if began.is_set():
            return "by the second"
        began.set()
        go.wait(20)
        return ctx.defer(60)

    job = define(waits)
    host("worker", concurrency=1)
    job_id = dispatch(job, tenant_id="acme").job_id
    state = queue_state()
    assert began.wait(10)
    before = state.job(job_id).data
    raw_redis.set(state.key(f"{job_id}:lock"), "theirs", px=400)
    go.set()
    lost, completed = ended_runs(job_id, 2)
    assert (lost.status, lost.deferrals, lost.resume_at) == ("lost", 0, None)
    assert (completed.status, completed.start, completed.result) == (
        "completed", 2, "by the second",
    )  # fmt: skip
    assert state.job(job_id).data == before


def test_a_run_that_is_broken_off_after_a_deferral_ends_there(
    host: StartHost, define: Define, queue_state: QueueStateFactory
) -> None:
    """Design 1: given back at a stop, the job goes on in a new run with the next start."""
    calls: list[str] = []
    go = threading.Event()

    def waits(payload: Payload, ctx: JobContext) -> Any:
        calls.append(str(ctx.run_id))
        if len(calls) == 1:
            return ctx.defer(0.05)
        if len(calls) == 2:
            go.wait(20)
        return "done"

    job = define(waits)
    first = host("worker", grace=0)
    job_id = dispatch(job, tenant_id="acme").job_id
    wait_until(lambda: len(calls) == 2, description="it goes on")
    first.stop()
    assert not {"_run", "_runStart"} & set(queue_state().job(job_id).data)
    host("worker")
    runs = final_runs(job_id)
    go.set()
    assert [(run.status, run.start, run.attempt, run.deferrals) for run in runs] == [
        ("interrupted", 1, 1, 1),
        ("completed", 3, 1, 0),
    ]
    assert calls[0] == calls[1] != calls[2]


def test_a_worker_that_dies_after_a_deferral(
    runjobs: RunJobsFactory, settings: Settings, queue_state: QueueStateFactory
) -> None:
    """P95, P98: what went on and was lost is lost; the job runs again, and is deferred again."""
    settings.KUMIKO = {**settings.KUMIKO, "LOCK_SECONDS": 1.0}
    runjobs("worker", concurrency=1)
    runjobs("worker", concurrency=1)
    job_id = dies_deferred.dispatch({}, tenant_id="acme").job_id
    runs = final_runs(job_id, timeout=30)
    assert [(run.status, run.start, run.attempt, run.deferrals) for run in runs] == [
        ("lost", 1, 1, 1),
        ("completed", 3, 1, 1),
    ]
    stored = queue_state().job(job_id)
    assert (stored.stalled, stored.attempts_made, stored.data["_deferCount"]) == (1, 1, 2)


def test_a_job_that_is_removed_while_its_handler_defers_it(
    host: StartHost, define: Define, raw_redis: redis.Redis, queue_state: QueueStateFactory
) -> None:
    """It will not go on, so it does not stand on deferred."""

    def waits(payload: Payload, ctx: JobContext) -> Any:
        raw_redis.delete(queue_state().key(ctx.job_id))
        return ctx.defer(60)

    job = define(waits)
    host("worker")
    job_id = dispatch(job, tenant_id="acme").job_id
    (run,) = ended_runs(job_id)
    assert (run.status, run.final) == ("cancelled", True)
    assert "no longer in the queue" in run.reason


def test_what_others_have_stored_is_kept_as_it_came(
    host: StartHost, define: Define, queue_prefix: str, redis_url: str,
    queue_state: QueueStateFactory,
) -> None:  # fmt: skip
    """B240: large and odd numbers, deep and empty things, keys that we do not know."""
    data = {
        "_tenantId": "acme", "_foreign": {"deep": [[], {}, None, 1.5e300, 2**53 - 1, "é\u2028"]},
        "empty": "", "list": [], "object": {},
    }  # fmt: skip
    calls: list[Payload] = []

    def waits(payload: Payload, ctx: JobContext) -> Any:
        calls.append(dict(payload))
        payload.clear()
        return ctx.defer(0.05) if len(calls) == 1 else None

    job = define(waits)
    (job_id,) = add_raw(
        redis_url, f"{queue_prefix}-worker", [(job.qualified_name, data, {"priority": 7})]
    )
    host("worker")
    final_runs(job_id)
    stored = queue_state().job(job_id)
    assert {key: stored.data[key] for key in data} == data
    assert stored.priority == 7
    assert calls[0] == calls[1] == {key: data[key] for key in ("empty", "list", "object")}


@pytest.mark.parametrize("count", [150])
def test_many_at_once(host: StartHost, define: Define, count: int) -> None:
    """Deferrals of many runs in one commit, among others that are not deferred."""

    async def waits(payload: Payload, ctx: JobContext) -> Any:
        deferred = payload["n"] % 2 and not JobRunSeen.add(payload["n"])
        return ctx.defer(0.02) if deferred else payload["n"]

    class JobRunSeen:
        numbers: set[int] = set()

        @classmethod
        def add(cls, number: int) -> bool:
            known = number in cls.numbers
            cls.numbers.add(number)
            return known

    job = define(waits)
    host("worker", concurrency=10)
    for number in range(count):
        dispatch(job, {"n": number}, tenant_id="acme")
    wait_until(
        lambda: JobRun.objects.filter(status="completed").count() == count,
        description="all are completed",
        timeout=30,
    )
    rows = list(JobRun.objects.values_list("start", "deferrals", "result", "resume_at"))
    assert {(start, n, resume) for start, n, _, resume in rows} == {(1, 0, None), (1, 1, None)}
    assert {result for _, _, result, _ in rows} == set(range(count))
