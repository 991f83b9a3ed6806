"""Deleting old runs: ended ones only, in short transactions, their logs with them."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from django.db import router, transaction
from django.db.models import QuerySet
from django.db.models.functions import Coalesce

from kumiko_django.history import stats
from kumiko_django.history.models import JobRun, JobRunLog
from kumiko_django.history.queries import first_id_at
from kumiko_django.history.visible_upkeep import forget

BATCH_SIZE: Final = 1_000
LARGEST_BATCH: Final = 10_000
_NONE: Final = UUID(int=0)


@dataclass
class Pruned:
    """How far it has come.

    Attributes:
        runs: Runs deleted.
        logs: Log lines deleted with them.
        seen: Records deleted that tenants could see: ended runs and resolved failures.
        finished: Whether all that was to be deleted is.
    """

    runs: int = 0
    logs: int = 0
    seen: int = 0
    finished: bool = False


def _go_on(seconds: float) -> bool:
    return True


def prune(
    older_than: dt.timedelta,
    *,
    now: dt.datetime,
    batch_size: int = BATCH_SIZE,
    progress: Callable[[Pruned], None] | None = None,
    go_on: Callable[[float], bool] = _go_on,
) -> Pruned:
    """Delete the runs that ended before ``now - older_than``.

    A run's age counts from its end, or its start where no end is on record. Runs that are running
    or deferred stay, and so do those of the current and the previous hour. An hour is rolled up
    before its first run is deleted. What tenants see goes with it: runs that ended, and failures
    that were resolved, before that; unresolved ones stay. Each batch is a transaction of its own.

    Args:
        older_than: The age.
        now: What time it is.
        batch_size: Runs deleted at once, at most.
        progress: Called after each batch.
        go_on: Asked between two batches, with the seconds that the last one took: it may wait as
            long, so that others get at the database. False ends the work there.

    Returns:
        What has been deleted.
    """
    alias, done = router.db_for_write(JobRun), Pruned()
    for batch in _batches(alias, now - older_than, now, batch_size):
        done.runs += batch.runs
        done.logs += batch.logs
        if progress is not None:
            progress(done)
        if not go_on(batch.seconds):
            return done
    for deleted, seconds in forget(alias, now - older_than, batch_size):
        done.seen += deleted
        if not go_on(seconds):
            return done
    done.finished = True
    return done


def count(older_than: dt.timedelta, *, now: dt.datetime) -> int:
    """How many runs :func:`prune` would delete; looks at each of them."""
    alias, cutoff = router.db_for_write(JobRun), now - older_than
    return _prunable(alias, _NONE, _limit(cutoff, now), cutoff).count()


def oldest_start() -> dt.datetime | None:
    """When the oldest run on record began."""
    runs = JobRun.objects.using(router.db_for_write(JobRun)).order_by("id")
    return runs.values_list("started_at", flat=True).first()


def _limit(cutoff: dt.datetime, now: dt.datetime) -> UUID:
    """No run with this id or a later one may be deleted: it began too late to have ended early."""
    return first_id_at(min(cutoff, stats.open_from(now)))


def _prunable(alias: str, after: UUID, before: UUID, cutoff: dt.datetime) -> QuerySet[JobRun]:
    # Conditions that have no index: what is left to walk by is the primary key.
    return (
        JobRun.objects.using(alias)
        .filter(id__gt=after, id__lt=before)
        .exclude(status__in=stats.UNFINISHED)
        .annotate(ended_at=Coalesce("finished_at", "started_at"))
        .filter(ended_at__lt=cutoff)
        .order_by("id")
    )


def _first_after(alias: str, position: UUID, cutoff: dt.datetime, now: dt.datetime) -> UUID | None:
    runs = _prunable(alias, position, _limit(cutoff, now), cutoff)
    return runs.values_list("id", flat=True).first()


class _Batch(NamedTuple):
    """What one transaction has deleted, and how long it took."""

    runs: int
    logs: int
    seconds: float


def _batches(
    alias: str, cutoff: dt.datetime, now: dt.datetime, batch_size: int
) -> Iterator[_Batch]:
    """Delete batch after batch, hour after hour."""
    position = _NONE
    while (first := _first_after(alias, position, cutoff, now)) is not None:
        hour = stats.hour_of(first)
        stats.settle(alias, hour, now)
        end = first_id_at(hour + stats.HOUR)
        while True:
            began = time.monotonic()
            runs = _prunable(alias, position, end, cutoff).values_list("id", flat=True)
            if not (ids := list(runs[:batch_size])):
                break
            # They have ended, long ago: nobody writes them any more, so the list stays right.
            deleted, logs = _delete(alias, ids)
            position = ids[-1]
            yield _Batch(deleted, logs, time.monotonic() - began)


def _delete(alias: str, ids: list[UUID]) -> tuple[int, int]:
    """Delete these runs and their log lines; give how many there were of each."""
    with transaction.atomic(using=alias):
        logs, _ = JobRunLog.objects.using(alias).filter(run_id__in=ids).delete()
        _, by_model = JobRun.objects.using(alias).filter(id__in=ids).delete()
    runs = by_model.get(JobRun._meta.label, 0)
    return runs, logs + by_model.get(JobRunLog._meta.label, 0)
