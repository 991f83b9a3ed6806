"""Writing one batch of run events in one transaction, so that repeating it changes nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import fields
from typing import Any
from uuid import UUID

from django.db import DatabaseError, IntegrityError, InterfaceError, OperationalError, transaction
from django.db.models import Max
from django.utils import timezone

from kumiko_django.history.clean import clean_row, clean_text
from kumiko_django.history.events import LogLine, RunEnded, RunStarted
from kumiko_django.history.models import JobRun, JobRunLog, RunStatus
from kumiko_django.types.jsonable import JSON

logger = logging.getLogger("kumiko_django.history")

_START_FIELDS = tuple(f.name for f in fields(RunStarted) if f.name != "run_id")
_END_FIELDS = tuple(f.name for f in fields(RunEnded) if f.name != "run_id")
_CHUNK = 500


def write(
    alias: str,
    starts: Mapping[UUID, RunStarted],
    ends: Mapping[UUID, tuple[RunEnded, Future[bool]]],
    logs: Iterable[tuple[UUID, LogLine]],
    progress: Mapping[UUID, JSON],
) -> dict[UUID, bool]:
    """Write the events to database ``alias``.

    Returns:
        For each ended run, whether its end stands in the record.

    Raises:
        OperationalError, InterfaceError: The database is away; nothing was written, or all was
            and the answer is lost. Repeating is right in both cases.
    """
    with transaction.atomic(using=alias):
        rows = [_row(event, ends.get(run_id)) for run_id, event in starts.items()]
        _insert(alias, rows)
        _close_lost(alias, starts.values())
        result = {run_id: True for run_id in ends if run_id in starts}
        for run_id, (event, _) in ends.items():
            if run_id not in starts:
                result[run_id] = _update_ended(alias, event)
        for run_id, value in progress.items():
            JobRun.objects.using(alias).filter(id=run_id, status=RunStatus.RUNNING).update(
                **clean_row({"progress": value})
            )
        _insert_logs(alias, logs)
    return result


def _row(start: RunStarted, ended: tuple[RunEnded, Future[bool]] | None) -> JobRun:
    values: dict[str, Any] = {name: getattr(start, name) for name in _START_FIELDS}
    if ended is None:
        values["status"] = RunStatus.RUNNING
    else:
        values.update({name: getattr(ended[0], name) for name in _END_FIELDS})
    return JobRun(id=start.run_id, **clean_row(values))


def _insert(alias: str, rows: list[JobRun]) -> None:
    if not rows:
        return
    try:
        with transaction.atomic(using=alias):
            JobRun.objects.using(alias).bulk_create(rows, batch_size=_CHUNK)
    except (OperationalError, InterfaceError):
        raise
    except DatabaseError:
        # One row stands in the way of all. Find it; write the others.
        for row in rows:
            _insert_one(alias, row)


def _insert_one(alias: str, row: JobRun) -> None:
    try:
        with transaction.atomic(using=alias):
            row.save(using=alias, force_insert=True)
    except IntegrityError:
        runs = JobRun.objects.using(alias)
        if runs.filter(id=row.id).exists():
            return  # written by the try whose answer was lost
        # Another run holds the key: the queue was restored, or the job retried from outside.
        same_job = runs.filter(
            lane=row.lane, queue_job_id=row.queue_job_id, queue_created_at=row.queue_created_at
        )
        row.start = (same_job.aggregate(top=Max("start"))["top"] or 0) + 1
        row.save(using=alias, force_insert=True)
    except (OperationalError, InterfaceError):
        raise
    except DatabaseError as error:
        logger.warning("The record of run %s is kept without its payload: %s", row.id, error)
        row.payload = row.result = row.progress = None
        row.error, row.traceback = clean_text(row.error, 1000), ""
        row.reason = "record incomplete"
        row.save(using=alias, force_insert=True)


def _close_lost(alias: str, starts: Iterable[RunStarted]) -> None:
    """Close the rows of earlier starts of the same job that still stand on running.

    The queue hands a job out again only after its former worker's lock has run out, so those runs
    are lost: their worker died, or was cut off from the queue (P30, P77).
    """
    for event in starts:
        if event.start > 1:
            JobRun.objects.using(alias).filter(
                lane=event.lane,
                queue_job_id=event.queue_job_id,
                queue_created_at=event.queue_created_at,
                status=RunStatus.RUNNING,
                start__lt=event.start,
            ).exclude(id=event.run_id).update(
                status=RunStatus.LOST,
                reason="the worker died or lost touch with the queue",
                finished_at=timezone.now(),
            )


def _update_ended(alias: str, event: RunEnded) -> bool:
    """Conditional, so that whoever closed the run first is not overwritten (P78)."""
    values = clean_row({name: getattr(event, name) for name in _END_FIELDS})
    runs = JobRun.objects.using(alias).filter(id=event.run_id)
    if runs.filter(status=RunStatus.RUNNING).update(**values):
        return True
    # A repeat after a lost answer finds its own end already there.
    return runs.filter(status=event.status, finished_at=event.finished_at).exists()


def _insert_logs(alias: str, logs: Iterable[tuple[UUID, LogLine]]) -> None:
    rows = [
        JobRunLog(
            run_id=run_id,
            **clean_row(
                {
                    "number": line.number,
                    "level": line.level,
                    "message": line.message,
                    "data": line.data or None,
                    "created_at": line.created_at,
                }
            ),
        )
        for run_id, line in logs
    ]
    # Lines of a run whose row is gone (deleted by hand while it ran) would break the batch.
    run_ids = {row.run_id for row in rows}
    present = (
        set(JobRun.objects.using(alias).filter(id__in=run_ids).values_list("id", flat=True))
        if run_ids
        else set()
    )
    JobRunLog.objects.using(alias).bulk_create(
        [row for row in rows if row.run_id in present], batch_size=_CHUNK, ignore_conflicts=True
    )
