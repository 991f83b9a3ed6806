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
    began = time.monotonic()
    worker = runjobs(
        "worker",
        "--drain",
        concurrency=CONCURRENCY,
        env={"DJANGO_SETTINGS_MODULE": SETTINGS, "KUMIKO_TEST_CONN_MAX_AGE": conn_max_age},
    )
    counted = [0]

    def ended() -> bool:
        counted.append(connection_count() or 0)
        return not worker.running

    wait_until(ended, description="the queue is drained", timeout=100, interval=0.05)
    most = max(counted)
    seconds = time.monotonic() - began
    logger.info("%d runs in %.1f s, start included; %d connections at most", runs, seconds, most)
    assert worker.wait() == 0, worker.output()

    rows = list(JobRun.objects.values("queue_job_id", "tenant_id", "status", "attempt", "start"))
    assert len(rows) == runs, Counter(row["status"] for row in rows)
    wrong = []
    for row in rows:
        number = numbers[row["queue_job_id"]]
        outcome = "completed" if number % FAILING else "failed"
        expected = (TENANTS[number // 2 % 3], outcome, 1, 1)
        if (row["tenant_id"], row["status"], row["attempt"], row["start"]) != expected:
            wrong.append((number, row))
    assert not wrong
    effects = {
        int(key): (tenant, value)
        for key, tenant, value in Effect.objects.values_list("key", "tenant_id", "value")
    }
    assert Effect.objects.count() == runs, "every handler ran once"
    assert effects == {number: (TENANTS[number // 2 % 3],) * 2 for number in range(runs)}
    counts = queue_state().counts()
    assert (counts["completed"], counts["failed"]) == (runs - runs // FAILING, runs // FAILING)
    assert queue_state().pending() == 0

    connections.close_all()
    if before is not None:
        assert most <= before + CONCURRENCY + OTHERS, f"{most} connections"
        wait_until(lambda: connection_count() == before, description="all are closed")
