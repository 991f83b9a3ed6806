"""Events as the run room makes them, for the tests of those who write them."""

from __future__ import annotations

import datetime as dt
from concurrent.futures import Future
from typing import Any
from uuid import UUID

from django.utils import timezone

from kumiko_django.history.batch import Batch, Ended
from kumiko_django.history.events import LogLine, RunEnded, RunStarted
from kumiko_django.types.ids import uuid7

CREATED = timezone.now().replace(hour=12, minute=0, second=0, microsecond=0) - dt.timedelta(days=1)


def started(job_id: str = "job", **values: Any) -> RunStarted:
    now = timezone.now()
    defaults: dict[str, Any] = {
        "run_id": uuid7(),
        "job_name": "testapp:job:record",
        "lane": "worker",
        "queue_job_id": job_id,
        "queue_created_at": CREATED,
        "attempt": 1,
        "max_attempts": 1,
        "start": 1,
        "tenant_id": "acme",
        "payload": {"n": 1},
        "started_at": now,
        "enqueued_at": CREATED,
        "wait_ms": 5,
        "worker": "host:1:abc",
    }
    return RunStarted(**{**defaults, **values})


def ended(run_id: UUID, **values: Any) -> RunEnded:
    defaults: dict[str, Any] = {
        "status": "completed",
        "final": True,
        "finished_at": timezone.now(),
        "duration_ms": 12,
    }
    return RunEnded(run_id=run_id, **{**defaults, **values})


def line(number: int = 1, message: str = "a line", **data: Any) -> LogLine:
    return LogLine(number, "info", message, data, timezone.now())


def batch(
    *starts: RunStarted,
    ends: tuple[RunEnded, ...] = (),
    logs: tuple[tuple[UUID, LogLine], ...] = (),
    progress: dict[UUID, Any] | None = None,
) -> Batch:
    return Batch(
        starts={event.run_id: event for event in starts},
        ends={event.run_id: Ended(event, Future()) for event in ends},
        logs=_by_run(logs),
        progress=progress or {},
    )


def _by_run(logs: tuple[tuple[UUID, LogLine], ...]) -> dict[UUID, list[LogLine]]:
    lines: dict[UUID, list[LogLine]] = {}
    for run_id, written in logs:
        lines.setdefault(run_id, []).append(written)
    return lines
