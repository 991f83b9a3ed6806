"""With the database away a worker runs on, until its records have no more room (design 9, P26)."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.db import connection, connections

from kumiko_django import JobContext, dispatch_many
from kumiko_django.history import recorder as recorder_module
from kumiko_django.history.models import JobRun
from tests.helpers.fixtures import DatabaseAway, QueueStateFactory
from tests.helpers.waiting import wait_until
from tests.integration.worker.host_thread import Define, StartHost, ended_run

MOST, CONCURRENCY, JOBS = 10, 4, 60


def a_while(seconds: float) -> None:
    """Nothing tells from outside that a worker stands still."""
    end = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > end, description="a while", interval=0.1)


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_a_worker_takes_no_more_than_it_can_keep_and_goes_on_afterwards(
    is_async: bool,
    define: Define,
    host: StartHost,
    database_away: DatabaseAway,
    queue_state: QueueStateFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is lost, nothing runs twice, and what waits is bounded all the while."""
    monkeypatch.setattr(recorder_module, "MOST_ENDS", MOST)
    if connection.vendor == "sqlite":  # it tells of a lock at once instead of waiting for it
        monkeypatch.setitem(connections.settings["default"]["OPTIONS"], "timeout", 0.05)
    called: list[Any] = []

    def short(payload: dict[str, Any], ctx: JobContext) -> None:
        called.append(payload["n"])

    async def short_async(payload: dict[str, Any], ctx: JobContext) -> None:
        called.append(payload["n"])

    job = define(short_async if is_async else short, name="short")
    queue = queue_state("worker")
    host("worker", concurrency=CONCURRENCY)
    ended_run(dispatch_many(job, [{"n": -1}], tenant_id="acme")[0].job_id)
    with database_away():
        sent = dispatch_many(job, [{"n": n} for n in range(JOBS)], tenant_id="acme")
        wait_until(lambda: len(called) > MOST, description="as many have run as there is room for")
        a_while(1.5)  # it must stand still now
        # Those that ran when the room was full, and those that were fetched as these were settled.
        most = MOST + 2 * CONCURRENCY
        assert len(called) - 1 <= most
        assert len(queue.wait) >= JOBS - most
        assert queue.active == [], "nothing is held that does not run"
    wait_until(
        lambda: JobRun.objects.filter(status="completed").count() == JOBS + 1,
        description="all is on record", timeout=30,
    )  # fmt: skip
    assert sorted(called) == list(range(-1, JOBS))
    assert {each.job_id for each in sent} <= set(queue.completed)
    assert JobRun.objects.count() == JOBS + 1
