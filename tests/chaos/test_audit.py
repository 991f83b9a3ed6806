"""The audit finds what it looks for: one planted fault at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis
from django.utils import timezone

from kumiko_django.history.models import JobRun, JobRunLog
from tests.chaos.audit import Expected, audit
from tests.chaos.evidence import Evidence
from tests.chaos.jobs import calls_key

JOB = "the-job"

pytestmark = pytest.mark.once


@pytest.fixture
def evidence(raw_redis: redis.Redis, queue_prefix: str) -> Evidence:
    """One job that failed once, lost a worker, and logged a line when it completed."""
    seen = Evidence(raw_redis, queue_prefix)
    raw_redis.hset(seen.queue.key(JOB), "stc", 1)
    raw_redis.zadd(seen.queue.key("completed"), {JOB: 1})
    raw_redis.hset(calls_key(queue_prefix), JOB, 3)
    add_row("failed", attempt=1, start=1)
    add_row("lost", attempt=2, start=2)
    completed = add_row("completed", attempt=2, start=3, final=True)
    JobRunLog.objects.create(
        run=completed, number=1, level="info", message="line", data={"number": 1},
        created_at=timezone.now(),
    )  # fmt: skip
    return seen


def add_row(status: str, job_id: str = JOB, **columns: Any) -> JobRun:
    now = timezone.now()
    return JobRun.objects.create(
        job_name="chaos:job:work", lane="worker", queue_job_id=job_id, queue_created_at=now,
        max_attempts=2, tenant_id="acme", status=status, enqueued_at=now, started_at=now,
        worker="host:17:abc", **columns,
    )  # fmt: skip


def look(evidence: Evidence) -> list[str]:
    return audit({JOB: Expected(fails_once=True, lines=1)}, evidence, {17: 0.0}).faults


def rows(**values: Any) -> Callable[[Evidence], object]:
    return lambda _: JobRun.objects.filter(status="lost").update(**values)


FAULTS: dict[str, tuple[Callable[[Evidence], object], str]] = {
    "a row on running": (rows(status="running"), "statuses"),
    "completed twice": (rows(status="completed", final=True), "not exactly the completed run"),
    "a final row that is not the end": (rows(final=True), "not exactly the completed run"),
    "one lost run too many": (lambda _: add_row("lost", attempt=2, start=0), "statuses"),
    "one lost run too few": (lambda _: JobRun.objects.filter(status="lost").delete(), "statuses"),
    "a row of a job that nobody sent": (
        lambda _: add_row("lost", "another", attempt=1, start=1), "no job of ours",
    ),
    "the failure missing": (
        lambda _: JobRun.objects.filter(status="failed").delete(), "statuses",
    ),
    "a log line missing": (lambda _: JobRunLog.objects.all().delete(), "the log of its"),
    "a record left": (
        lambda seen: seen.queue.client.hset(seen.queue.key("kumiko:unrecorded"), "x/1/1", "{}"),
        "left in the queue",
    ),
    "not completed in the queue": (
        lambda seen: seen.queue.client.delete(seen.queue.key("completed")), "not completed",
    ),
    "calls without rows": (
        lambda seen: seen.queue.client.hset(calls_key(seen.queue_prefix), JOB, 4), "was called 4",
    ),
}  # fmt: skip


def test_a_job_that_stands_as_it_has_to_is_not_complained_of(evidence: Evidence) -> None:
    """Must hold: with a failed attempt, a lost run and a log."""
    found = audit({JOB: Expected(fails_once=True, lines=1)}, evidence, {17: 0.0})
    assert not found.faults
    assert (found.jobs, found.rows, found.lost, found.failed) == (1, 3, 1, 1)
    assert (found.called_again, len(found.recoveries)) == (1, 1)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str, evidence: Evidence) -> None:
    """Must hold: the random kills are worth what this finds."""
    plant, complaint = FAULTS[fault]
    plant(evidence)
    assert any(complaint in each for each in look(evidence)), look(evidence)
