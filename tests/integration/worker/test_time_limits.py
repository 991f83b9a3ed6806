"""``timeout=`` through a real queue: a failed attempt, and no retry beside it (P23, design 4)."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
import redis
from pytest_django import Settings

from kumiko_django import Backoff, JobContext, dispatch
from kumiko_django.history.models import JobRun
from tests.app.jobs import record
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.waiting import await_until, wait_until
from tests.integration.worker.host_thread import (
    Define,
    StartHost,
    ended_run,
    ended_runs,
    lines_of,
)

pytestmark = pytest.mark.once

Payload = dict[str, Any]


def endless(payload: Payload, ctx: JobContext) -> str:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        pass
    return "too late"


async def endless_async(payload: Payload, ctx: JobContext) -> str:
    await asyncio.sleep(20)
    return "too late"


def test_it_is_a_failed_attempt_with_its_own_message(
    host: StartHost, define: Define, queue_state: QueueStateFactory
) -> None:
    """B007, P23: retried like any failure, final with the last; the traceback says where it was."""
    jobs = [
        define(handler, retries=1, backoff=Backoff.fixed(0.05), timeout=0.2)
        for handler in (endless, endless_async)
    ]
    host("worker")
    for job, where in zip(jobs, ("in endless\n", "in endless_async\n"), strict=True):
        job_id = dispatch(job, tenant_id="acme").job_id
        runs = ended_runs(job_id, 2)
        error = "TimedOut: the handler ran longer than its timeout of 0.2 s"
        assert [(run.status, run.attempt, run.final, run.error) for run in runs] == [
            ("failed", 1, False, error),
            ("failed", 2, True, error),
        ]
        assert where in runs[0].traceback
        assert ("warn", "cancelled: its timeout of 0.2 s is over") in lines_of(runs[0].id)
        wait_until(lambda: job_id in queue_state().failed, description="it has failed")  # noqa: B023
        assert queue_state().job(job_id).failed_reason == error


def test_no_retry_begins_before_the_thread_has_ended(
    host: StartHost, define: Define, queue_state: QueueStateFactory, settings: Settings
) -> None:
    """Design 4: slot and lock are held for as long as it really runs, over several locks."""
    settings.KUMIKO = {**settings.KUMIKO, "LOCK_SECONDS": 1.0}
    go, beginnings, endings = threading.Event(), [], []

    def hangs(payload: Payload, ctx: JobContext) -> str:
        beginnings.append(time.monotonic())
        try:
            if ctx.attempt == 1:
                go.wait(20)
        finally:
            endings.append(time.monotonic())
        return "done"

    job = define(hangs, retries=1, backoff=Backoff.fixed(0.01), timeout=0.2)
    host("worker", concurrency=1, grace=20)
    host("worker", concurrency=1, grace=20)
    job_id = dispatch(job, tenant_id="acme").job_id
    wait_until(lambda: beginnings, description="it runs")
    state, end = queue_state(), time.monotonic() + 2.5
    held: list[bool] = []

    def some_locks_later() -> bool:
        held.append(job_id in state.active and state.locked(job_id))
        return time.monotonic() > end

    wait_until(some_locks_later, description="some locks have passed")
    assert all(held)
    assert len(beginnings) == 1
    go.set()
    first, second = ended_runs(job_id, 2)
    assert (first.status, second.status, second.attempt) == ("failed", "completed", 2)
    assert endings[0] < beginnings[1]
    assert JobRun.objects.filter(queue_job_id=job_id).count() == 2, "no run was lost"


def test_one_that_does_not_end_retires_the_worker(host: StartHost, define: Define) -> None:
    """Design 4: others may end, nothing new is taken, and the attempt has failed."""
    go, began = threading.Event(), threading.Event()

    def hangs(payload: Payload, ctx: JobContext) -> None:
        go.wait(60)

    def neighbour(payload: Payload, ctx: JobContext) -> str:
        began.set()
        time.sleep(1.5)  # while the other's grace runs out
        return "ended in peace"

    stuck, other = define(hangs, timeout=0.2), define(neighbour)
    worker = host("worker", concurrency=2, grace=1)
    stuck_id = dispatch(stuck, tenant_id="acme").job_id
    other_id = dispatch(other, tenant_id="acme").job_id
    assert began.wait(10)
    assert worker.wait(20) is False, "a handler has not ended"
    go.set()
    assert worker.retired
    failed, ended = ended_run(stuck_id), ended_run(other_id)
    assert (failed.status, failed.final) == ("failed", True)
    assert failed.error.startswith("TimedOut")
    assert (ended.status, ended.result) == ("completed", "ended in peace")


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_lost_lock_tells_the_handler(
    kind: str, host: StartHost, define: Define, raw_redis: redis.Redis,
    queue_state: QueueStateFactory, settings: Settings,
) -> None:  # fmt: skip
    """P31, bullmq-python 1.10: a flag, recorded; what the loser returns is void."""
    settings.KUMIKO = {**settings.KUMIKO, "LOCK_SECONDS": 1.0}
    seen: list[bool] = []

    def asks(payload: Payload, ctx: JobContext) -> str:
        if seen:
            return "winner"
        seen.append(ctx.cancelled)
        wait_until(lambda: ctx.cancelled, description="it is told")
        seen.append(ctx.cancelled)
        return "loser"

    async def asks_async(payload: Payload, ctx: JobContext) -> str:
        if seen:
            return "winner"
        seen.append(ctx.cancelled)
        await await_until(lambda: ctx.cancelled, description="it is told")
        seen.append(ctx.cancelled)
        return "loser"

    job = define(asks if kind == "sync" else asks_async)
    host("worker", concurrency=1)
    job_id = dispatch(job, tenant_id="acme").job_id
    wait_until(lambda: seen, description="it runs")
    raw_redis.set(queue_state().key(f"{job_id}:lock"), "theirs", px=700)
    lost, won = ended_runs(job_id, 2)
    assert seen == [False, True]
    assert (lost.status, lost.result, won.status, won.result) == (
        "lost", None, "completed", "winner",
    )  # fmt: skip
    assert "lock" in lost.reason
    assert ("warn", "cancelled: its lock is lost; another worker may run it now") in lines_of(
        lost.id
    )


def test_a_handler_that_goes_on_when_the_worker_leaves_is_told(
    host: StartHost, define: Define
) -> None:
    """Its job is given back: the sooner it ends, the less is done twice."""
    told = threading.Event()

    def asks(payload: Payload, ctx: JobContext) -> None:
        wait_until(lambda: ctx.cancelled, description="it is told", timeout=20)
        told.set()

    job = define(asks)
    worker = host("worker", grace=0.2)
    job_id = dispatch(job, tenant_id="acme").job_id
    wait_until(lambda: JobRun.objects.filter(queue_job_id=job_id).exists(), description="it runs")
    worker.stop()
    assert told.wait(5)
    assert ended_run(job_id).status == "interrupted"


def test_others_are_not_disturbed(host: StartHost, define: Define) -> None:
    """P23: threads that were stopped are used again; what follows in them is unharmed."""
    job = define(endless, timeout=0.1)
    host("worker", concurrency=2)
    stopped = [dispatch(job, tenant_id="acme").job_id for _ in range(4)]
    good = [record.dispatch({"returns": n}, tenant_id="acme").job_id for n in range(20)]
    assert [ended_run(job_id).result for job_id in good] == list(range(20))
    assert {ended_run(job_id).status for job_id in stopped} == {"failed"}
