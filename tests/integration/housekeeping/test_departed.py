"""Rows of deferred runs whose jobs are no longer there to go on (P98)."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
from typing import Any

import pytest

from kumiko_django import Dispatched, JobContext, dispatch
from kumiko_django.broker.hasten import hasten
from kumiko_django.broker.records import records_key
from kumiko_django.history.models import JobRun
from kumiko_django.history.turns import DEPARTED
from kumiko_django.worker import departed
from kumiko_django.worker.departed import Departed
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.queues import QueueState
from tests.helpers.waiting import wait_until
from tests.integration.worker.conftest import define, host
from tests.integration.worker.host_thread import Define, StartHost, add_raw, ended_run

__all__ = ["define", "host"]
pytestmark = pytest.mark.django_db(transaction=True)

GOOD = {"_tenantId": "acme"}


def go_on() -> bool:
    return True


def look(sweep: Departed | None = None) -> int:
    """One pass of the housekeeping's task: how many rows it has ended."""
    return (sweep or Departed()).run(dt.datetime.now(dt.UTC), go_on)


@pytest.fixture
def queue(queue_state: QueueStateFactory) -> QueueState:
    return queue_state("worker")


@pytest.fixture
def deferred(define: Define, host: StartHost) -> Dispatched:
    """A job that was deferred for an hour and would end well then. No worker is there."""
    calls: list[str] = []

    def waits(payload: Any, ctx: JobContext) -> Any:
        calls.append(ctx.job_id)
        return ctx.defer(3600) if len(calls) == 1 else "went on"

    job = define(waits, name="waits", concurrency="replace")
    worker = host("worker")
    dispatched = dispatch(job, tenant_id="acme")
    ended_run(dispatched.job_id)
    worker.stop()
    return dispatched


def row(dispatched: Dispatched) -> JobRun:
    return JobRun.objects.get(queue_job_id=dispatched.job_id)


def test_one_that_waits_is_left_alone(deferred: Dispatched) -> None:
    assert look() == 0
    assert row(deferred).status == "deferred"


def test_one_whose_job_was_replaced_is_cancelled(deferred: Dispatched) -> None:
    """P98, B051: replaced by us, and it does not stand on deferred for ever."""
    later = dispatch("testapp:job:waits", tenant_id="acme")
    assert later.status == "replaced"
    assert look() == 1
    run = row(deferred)
    assert (run.status, run.reason, run.final) == ("cancelled", DEPARTED, True)
    assert (run.resume_at, run.finished_at is None, run.deferrals) == (None, False, 1)
    assert look() == 0


def test_one_whose_job_was_removed_by_another_client(
    deferred: Dispatched, queue: QueueState
) -> None:
    queue.client.delete(queue.key(deferred.job_id))
    assert look() == 1
    assert row(deferred).status == "cancelled"


def test_one_that_has_ended_and_is_not_on_record_yet(
    deferred: Dispatched, queue: QueueState
) -> None:
    """Its record waits beside the queue: that says what became of it."""
    run, kept = row(deferred), records_key("worker")
    queue.client.delete(queue.key(deferred.job_id))
    created_ms = round(run.queue_created_at.timestamp() * 1000)
    queue.client.hset(kept, f"{deferred.job_id}/{created_ms}/2", "{}")
    assert look() == 0
    queue.client.delete(kept)
    assert look() == 1


@pytest.mark.parametrize("job_id", ["x" * 300, "nul\0nul"])
def test_one_whose_id_no_column_holds_is_left_alone(
    job_id: str, define: Define, host: StartHost, redis_url: str, queue_prefix: str
) -> None:
    """Another client's: what stands in the row is not the id by which the queue knows the job."""
    calls: list[str] = []
    go = threading.Event()

    def waits(payload: Any, ctx: JobContext) -> Any:
        calls.append(ctx.job_id)
        return ctx.defer(3600) if len(calls) == 1 else go.wait(20)

    define(waits, name="waits")
    worker = host("worker")
    options = {"jobId": job_id}
    add_raw(redis_url, f"{queue_prefix}-worker", [("testapp:job:waits", GOOD, options)])
    wait_until(lambda: JobRun.objects.filter(status="deferred").exists(), description="deferred")
    worker.stop()
    assert look() == 0
    asyncio.run(hasten("worker", later=True))
    host("worker")
    try:
        wait_until(lambda: JobRun.objects.get().status == "running", description="it goes on")
    finally:
        go.set()
    wait_until(lambda: JobRun.objects.get().status == "completed", description="it has ended")


def test_one_that_goes_on_after_all_tells_how_it_ended(
    deferred: Dispatched, queue: QueueState, host: StartHost
) -> None:
    """A Redis that was restored, or another QUEUE_PREFIX: whoever runs it knows better."""
    key = queue.key(deferred.job_id)
    queue.client.rename(key, f"{key}-aside")
    assert look() == 1
    queue.client.rename(f"{key}-aside", key)
    asyncio.run(hasten("worker", later=True))
    host("worker")
    wait_until(lambda: row(deferred).status == "completed", description="it has ended")
    run = row(deferred)
    assert (run.result, run.reason, run.final, run.resume_at) == ("went on", "", True, None)


def test_a_pass_looks_at_some_and_the_next_goes_on(
    deferred: Dispatched, queue: QueueState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are; the oldest first, and then again from the first on."""
    first = row(deferred)
    JobRun.objects.bulk_create(
        JobRun(
            **{
                field.attname: getattr(first, field.attname)
                for field in JobRun._meta.concrete_fields
                if field.attname not in ("id", "queue_job_id")
            },
            queue_job_id=f"gone-{number}",
        )
        for number in range(5)
    )
    monkeypatch.setattr(departed, "CHUNK", 2)
    monkeypatch.setattr(departed, "MOST", 4)
    sweep = Departed()
    assert [look(sweep), look(sweep), look(sweep)] == [3, 2, 0]
    queue.client.delete(queue.key(deferred.job_id))
    assert look(sweep) == 1
