"""Rows of the history for the tests of the admin, written as the recorder writes them."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import Any
from uuid import UUID, uuid4

from django.utils import timezone

from kumiko_django.history.models import JobRun, JobRunLog, RunStatus
from kumiko_django.history.queries import first_id_at

_numbers = itertools.count(1)


def id_at(moment: dt.datetime) -> UUID:
    """A run's id as it is made at ``moment``; no two are the same."""
    return UUID(int=first_id_at(moment).int | next(_numbers))


def unsaved_run(**values: Any) -> JobRun:
    """A completed run of a moment ago, unless ``values`` say something else."""
    started_at = values.pop("started_at", None) or timezone.now()
    status = values.get("status", RunStatus.COMPLETED)
    ended = status not in (RunStatus.RUNNING, RunStatus.DEFERRED)
    defaults: dict[str, Any] = {
        "id": id_at(started_at),
        "job_name": "testapp:job:record",
        "lane": "worker",
        "queue_job_id": str(uuid4()),
        "queue_created_at": started_at,
        "attempt": 1,
        "max_attempts": 3,
        "start": values.get("attempt", 1),
        "tenant_id": "acme",
        "status": status,
        "final": status == RunStatus.COMPLETED,
        "payload": {"key": "value"},
        "correlation_id": str(uuid4()),
        "enqueued_at": started_at - dt.timedelta(seconds=2),
        "started_at": started_at,
        "finished_at": started_at + dt.timedelta(seconds=1) if ended else None,
        "wait_ms": 2_000,
        "duration_ms": 1_000 if ended else None,
        "worker": "host-1:4711:abcd",
    }
    return JobRun(**{**defaults, **values})


def make_run(**values: Any) -> JobRun:
    """Write one run."""
    run = unsaved_run(**values)
    run.save(force_insert=True)
    return run


def make_runs(count: int, **values: Any) -> list[JobRun]:
    """Write ``count`` runs, a second apart; the last one is the newest."""
    now = timezone.now()
    return JobRun.objects.bulk_create(
        [
            unsaved_run(**{"started_at": now - dt.timedelta(seconds=count - index), **values})
            for index in range(count)
        ]
    )


def make_log(run: JobRun, count: int, **values: Any) -> None:
    """Write ``count`` lines of the log of ``run``."""
    JobRunLog.objects.bulk_create(
        JobRunLog(
            **{
                "run": run,
                "number": number,
                "level": "info",
                "message": f"line number {number}",
                "created_at": run.started_at + dt.timedelta(milliseconds=number),
                **values,
            }
        )
        for number in range(1, count + 1)
    )
