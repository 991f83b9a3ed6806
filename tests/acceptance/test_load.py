"""Two thousand runs at concurrency 16 over three tenants (must hold; user-needs 20, 23)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from typing import Any

import pytest
from bullmq import Queue
from django.db import connections
from pytest_django import Settings

from kumiko_django.history.models import JobRun
from tests.app.models import Effect
from tests.helpers.fixtures import ConnectionCount, QueueStateFactory, RunJobsFactory
from tests.helpers.processes import RunJobs
from tests.helpers.waiting import wait_until
from tests.integration.worker.extra import FAILING, SETTINGS

TENANTS = ("acme", "globex", "initech")
RUNS = 2000
CONCURRENCY = 16
OTHERS = 4
"""Connections beside those of handlers: the recorder's, this test's, and two that just close."""

logger = logging.getLogger(__name__)
pytestmark = pytest.mark.soak


def job(number: int) -> tuple[str, dict[str, Any]]:
    """Sync and async in turn, tenants in turn, independent of each other and of who fails."""
    name = "numbered" if number % 2 else "numbered-async"
    return f"extra:job:{name}", {"_tenantId": TENANTS[number // 2 % 3], "number": number}


def add_all(settings: Settings, numbers: range) -> dict[str, int]:
    """Add the jobs in bulk as another client does, and give the number of each id."""
    kumiko = settings.KUMIKO
    keep = {"removeOnComplete": {"age": 600}, "removeOnFail": {"age": 600}}

    async def add() -> dict[str, int]:
        queue = Queue(f"{kumiko['QUEUE_PREFIX']}-worker", {"connection": kumiko["REDIS_URL"]})
        try:
            jobs = await queue.addBulk(
                [
                    {"name": name, "data": data, "opts": {**keep, "jobId": f"n-{data['number']}"}}
                    for name, data in map(job, numbers)
                ]
            )
        finally:
            await queue.close()
        return {str(added.id): number for added, number in zip(jobs, numbers, strict=True)}

    return asyncio.run(add())


def drained(worker: RunJobs, connection_count: ConnectionCount) -> int:
    """Wait for the end of the worker, and give the most connections that there were meanwhile."""
    counted = [0]

    def ended() -> bool:
        counted.append(connection_count() or 0)
        return not worker.running

    wait_until(ended, description="the queue is drained", timeout=100, interval=0.05)
    assert worker.wait() == 0, worker.output()
    return max(counted)


def outcome(number: int) -> str:
    return "completed" if number % FAILING else "failed"


def check_history(numbers: dict[str, int]) -> None:
    """One row a run, with the right tenant and outcome, and one effect under that tenant."""
    rows = list(JobRun.objects.values("queue_job_id", "tenant_id", "status", "attempt", "start"))
    assert len(rows) == len(numbers), Counter(row["status"] for row in rows)
    expected = {
        (job_id, TENANTS[number // 2 % 3], outcome(number), 1, 1)
        for job_id, number in numbers.items()
    }
    assert {tuple(row.values()) for row in rows} == expected
    effects = Effect.objects.values_list("key", "tenant_id", "value")
    seen = {int(key): (tenant, value) for key, tenant, value in effects}
    assert len(effects) == len(numbers), "every handler ran once"
    assert seen == {number: (TENANTS[number // 2 % 3],) * 2 for number in numbers.values()}


@pytest.mark.parametrize(
    ("conn_max_age", "runs"), [("-1", RUNS), ("0", RUNS // 4)], ids=["kept", "closed"]
)
def test_every_run_has_one_row_with_its_tenant_and_outcome(
    conn_max_age: str,
    runs: int,
    runjobs: RunJobsFactory,
    settings: Settings,
    queue_state: QueueStateFactory,
    connection_count: ConnectionCount,
) -> None:
    """Sync and async, some failing; no connection leaked, by PostgreSQL's own count, also where
    connections are kept for ever (CONN_MAX_AGE None)."""
    connections.close_all()
    before = connection_count()
    numbers = add_all(settings, range(runs))
    env = {"DJANGO_SETTINGS_MODULE": SETTINGS, "KUMIKO_TEST_CONN_MAX_AGE": conn_max_age}
    began = time.monotonic()
    worker = runjobs("worker", "--drain", concurrency=CONCURRENCY, env=env)
    most = drained(worker, connection_count)
    seconds = time.monotonic() - began
    logger.info("%d runs in %.1f s, start included; %d connections at most", runs, seconds, most)
    check_history(numbers)
    counts = queue_state().counts()
    assert (counts["completed"], counts["failed"]) == (runs - runs // FAILING, runs // FAILING)
    assert queue_state().pending() == 0
    connections.close_all()
    if before is not None:
        assert most <= before + CONCURRENCY + OTHERS, f"{most} connections"
        wait_until(lambda: connection_count() == before, description="all are closed")
