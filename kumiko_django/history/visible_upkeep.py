"""Keeping what tenants see small and true: the old goes, what was lost does not run for ever."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator
from typing import Any, Final
from uuid import UUID

from django.db import router
from django.db.models import QuerySet

from kumiko_django.history.models import JobRun, RunStatus
from kumiko_django.history.queries import first_id_at
from kumiko_django.history.visible_models import TenantVisibleFailure, TenantVisibleRun

INTERVAL: Final = 60.0
"""Seconds between two looks."""
SUCCESSES_AGE: Final = dt.timedelta(days=1)
"""How long a success is remembered of a subject that has not failed. An earlier failure can come on
record later only while its record lies beside the queue, from where any worker takes it within
seconds."""
_CHUNK: Final = 500
_UNFINISHED: Final = (RunStatus.RUNNING, RunStatus.DEFERRED)
_NONE: Final = UUID(int=0)


def forget(alias: str, cutoff: dt.datetime, batch_size: int) -> Iterator[tuple[int, float]]:
    """Delete runs that ended, and failures that were resolved, before ``cutoff``.

    Args:
        alias: The database.
        cutoff: An aware time.
        batch_size: Rows deleted at once, at most.

    Yields:
        For each batch how many rows it had, and how many seconds it took.
    """
    runs = TenantVisibleRun.objects.using(alias).filter(finished_at__lt=cutoff)
    failures = TenantVisibleFailure.states.using(alias).filter(resolved_at__lt=cutoff)
    for rows in (runs, failures):
        yield from _delete(rows, "run_id", first_id_at(cutoff), batch_size)


def look_after(now: dt.datetime, go_on: Callable[[], bool]) -> None:
    """Bring runs up to date that ended elsewhere, and forget old successes.

    Args:
        now: The time.
        go_on: Asked between two steps.

    Raises:
        DatabaseError: The database is away.
    """
    alias = router.db_for_write(JobRun)
    for _ in _end_what_has_ended(alias, now):
        if not go_on():
            return
    never_failed = TenantVisibleFailure.states.using(alias).filter(run_id=None)
    until = first_id_at(now - SUCCESSES_AGE)
    for _ in _delete(never_failed, "success_run_id", until, _CHUNK):
        if not go_on():
            return


def _delete(
    rows: QuerySet[Any], key: str, until: UUID, batch_size: int
) -> Iterator[tuple[int, float]]:
    """Delete in the order of ``key``, a run's id, which has an index; pass what has to stay."""
    position = _NONE
    while True:
        began = time.monotonic()
        found = rows.filter(**{f"{key}__gt": position, f"{key}__lt": until}).order_by(key)
        batch = list(found.values_list("pk", key)[:batch_size])
        if not batch:
            return
        # The conditions again: a run may have begun, or a failure come back, in between.
        deleted, _ = found.order_by().filter(pk__in=[pk for pk, _ in batch]).delete()
        position = batch[-1][1]
        yield deleted, time.monotonic() - began


def _end_what_has_ended(alias: str, now: dt.datetime) -> Iterator[None]:
    """Runs that were closed by others, or whose rows are gone, do not go on here."""
    position, until = _NONE, first_id_at(now)
    rows = TenantVisibleRun.objects.using(alias).filter(status__in=_UNFINISHED)
    while True:
        ahead = rows.filter(run_id__gt=position, run_id__lt=until)
        found = list(ahead.order_by("run_id")[:_CHUNK])
        if not found:
            return
        position = found[-1].run_id
        runs = JobRun.objects.using(alias).only("status", "final", "finished_at")
        known = runs.in_bulk([row.run_id for row in found])
        for row in found:
            _end_one(rows, row, known.get(row.run_id), now)
        yield


def _end_one(
    rows: QuerySet[TenantVisibleRun], row: TenantVisibleRun, run: JobRun | None, now: dt.datetime
) -> None:
    if run is not None and run.status in _UNFINISHED:
        return
    # As it was read: the writer may have been there since.
    same = rows.filter(pk=row.pk, run_id=row.run_id, started_at=row.started_at)
    if run is None:
        same.update(status=RunStatus.LOST, final=False, finished_at=now)
    else:
        same.update(status=run.status, final=run.final, finished_at=run.finished_at or now)
