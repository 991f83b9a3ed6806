"""Runs that were lost: their worker died, or was cut off from the queue (P30, P77, design 9)."""

from __future__ import annotations

import datetime as dt
from itertools import islice
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from kumiko_django.conf import get_settings
from kumiko_django.history.events import RunEnded
from kumiko_django.history.models import JobRun, JobRunQuerySet, RunStatus
from kumiko_django.history.record import START_FIELDS

_LOST = "the worker died or lost touch with the queue"
_MOST_LOST = 100
"""A foreign record may count to anything."""
_MILLISECOND = 80
"""The time in a UUID of version 7 stands above this many random and fixed bits."""


def see_to_lost(alias: str, row: JobRun, losses: int) -> None:
    """Put on record which earlier runs of the job of ``row`` were lost.

    Args:
        alias: The database.
        row: The run that has just been put on record.
        losses: How many earlier runs of its job the queue counts as lost.
    """
    _close_lost(alias, row)
    _add_lost(alias, row, losses)


def _close_lost(alias: str, row: JobRun) -> None:
    """Close the rows of earlier starts of the same job that still stand on running or deferred.

    The queue hands a job out again only after its former worker's lock has run out, so those runs
    are lost: their worker died, or was cut off from the queue (P30, P77).
    """
    if row.start > 1:
        same_job(alias, row).filter(
            # Deferred: it went on, and its worker died before that was on record.
            status__in=(RunStatus.RUNNING, RunStatus.DEFERRED),
            start__lt=row.start,
        ).exclude(id=row.id).update(
            status=RunStatus.LOST,
            reason=_LOST,
            finished_at=timezone.now(),
            resume_at=None,
        )


def _add_lost(alias: str, row: JobRun, losses: int) -> None:
    """Write the lost runs that their workers did not live to put on record (design 9).

    A start waits up to a tenth of a second for its commit; a handler that kills its worker may be
    faster. The queue counts the losses, and the starts below ours that have no row are theirs.
    """
    age = get_settings().history_age
    if not losses or (age and row.queue_created_at < timezone.now() - dt.timedelta(seconds=age)):
        return  # of a job that is older than the history, rows may have been pruned
    siblings = same_job(alias, row)
    missing = min(losses, _MOST_LOST) - siblings.filter(status=RunStatus.LOST).count()
    taken = set(siblings.values_list("start", flat=True)) if missing > 0 else set()
    free = (start for start in range(row.start - 1, 0, -1) if start not in taken)
    kept = [field for field in START_FIELDS if field not in ("start", "worker", "wait_ms")]
    JobRun.objects.using(alias).bulk_create(
        [
            JobRun(
                # As much earlier as it takes to stand before our own in the order of ids.
                id=UUID(int=row.id.int - (back << _MILLISECOND)),
                start=start,
                status=RunStatus.LOST,
                reason=f"{_LOST}, before the run was on record",
                finished_at=row.started_at,
                **{name: getattr(row, name) for name in kept},
            )
            for back, start in enumerate(islice(free, max(missing, 0)), start=1)
        ],
        ignore_conflicts=True,
    )


def guessed_row(alias: str, row: JobRun) -> JobRun | None:
    """The row that :func:`see_to_lost` has written for this very run, not knowing its id."""
    return (
        same_job(alias, row)
        .filter(start=row.start, attempt=row.attempt, status=RunStatus.LOST, worker="")
        .first()
    )


def take_place(alias: str, row: JobRun, guessed: JobRun, ended: RunEnded | None) -> bool:
    """Put a run on record in the place of the row that was guessed for it.

    Returns:
        Whether what it says of its end stands.
    """
    if ended is None or ended.status != "lost":
        row.status, row.final, row.result = RunStatus.LOST, False, None
        row.reason, row.finished_at = guessed.reason, guessed.finished_at
    guessed.delete(using=alias)
    insert_alone(alias, row)
    return ended is None or ended.status == "lost"


def insert_alone(alias: str, row: JobRun) -> None:
    """Insert a row; what is around it stands if that fails.

    Raises:
        DatabaseError: It does.
    """
    with transaction.atomic(using=alias):
        row.save(using=alias, force_insert=True)


def same_job(alias: str, row: JobRun) -> JobRunQuerySet:
    """All runs of the job of ``row``."""
    return JobRun.objects.using(alias).filter(
        lane=row.lane, queue_job_id=row.queue_job_id, queue_created_at=row.queue_created_at
    )
