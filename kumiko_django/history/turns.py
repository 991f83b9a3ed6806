"""Deferrals, and what becomes of runs that have been deferred: the same row, again and again (P98).

Each deferral has a number. An event is written only if the row has not got further by then, so
events may come late, twice, or after their worker's death from somebody else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.models import Q

from kumiko_django.history.batch import Turn
from kumiko_django.history.clean import clean_row
from kumiko_django.history.events import RunEnded, RunStarted
from kumiko_django.history.models import JobRun, JobRunQuerySet, RunStatus
from kumiko_django.history.record import END_FIELDS, decode

Insert = Callable[[str, RunStarted, RunEnded | None], bool]

DEPARTED = "its job was replaced or removed before it went on"
"""Why a deferred run is cancelled. If it does go on (Redis was restored, say), its row does too."""
_OPEN = Q(status__in=(RunStatus.RUNNING, RunStatus.DEFERRED)) | Q(
    status=RunStatus.CANCELLED, reason=DEPARTED
)


def apply_turn(alias: str, turn: Turn, insert: Insert) -> bool:
    """Write one event of a run that is, or was, deferred.

    Args:
        alias: The database.
        turn: The event.
        insert: Inserts the row of a run that has none.

    Returns:
        Whether it stands in the record.
    """
    start = _start_of(turn)
    event = None if turn.ended is None else turn.ended.event
    run_id = turn.run_id
    if start is not None and not JobRun.objects.using(alias).filter(id=run_id).exists():
        return insert(alias, start, event)
    runs = _own(JobRun.objects.using(alias).filter(id=run_id), start)
    if event is None:
        return _resume(runs, start)
    return _defer(runs, event) if event.status == "deferred" else _end(runs, event)


def _start_of(turn: Turn) -> RunStarted | None:
    if turn.start is not None or turn.ended is None or not turn.ended.record:
        return turn.start
    return decode(turn.ended.record)[0]


def _own(runs: JobRunQuerySet, start: RunStarted | None) -> JobRunQuerySet:
    """Of this job. The id comes out of the job's data, where another client may have put it."""
    if start is None:
        return runs
    same_job = {"lane": start.lane, "queue_job_id": start.queue_job_id}
    return runs.filter(queue_created_at=start.queue_created_at, **clean_row(same_job))


def _resume(runs: JobRunQuerySet, start: RunStarted | None) -> bool:
    """The handler runs again. The start is that of the invocation, as is the duration (B241)."""
    if start is None:
        return False
    number = start.deferrals
    # Its deferral may not be on record yet; or it is, and this is its turn.
    behind = Q(deferrals__lt=number) | Q(deferrals=number) & ~Q(status=RunStatus.RUNNING)
    return bool(
        runs.filter(_OPEN & behind).update(
            status=RunStatus.RUNNING,
            final=False,
            reason="",
            finished_at=None,
            deferrals=number,
            resume_at=None,
            started_at=start.started_at,
            worker=start.worker,
        )
    )


def _defer(runs: JobRunQuerySet, event: RunEnded) -> bool:
    values = _values(event)
    # It has not ended.
    values |= {"finished_at": None, "resume_at": event.resume_at, "deferrals": event.deferrals}
    behind = runs.filter(_OPEN, deferrals__lt=event.deferrals)
    return bool(behind.update(**values)) or runs.filter(deferrals__gte=event.deferrals).exists()


def _end(runs: JobRunQuerySet, event: RunEnded) -> bool:
    values = _values(event) | {"resume_at": None, "deferrals": event.deferrals}
    open_runs = runs.filter(_OPEN, deferrals__lte=event.deferrals)
    if open_runs.update(**values):
        return True
    return runs.filter(status=event.status, finished_at=event.finished_at).exists()


def _values(event: RunEnded) -> dict[str, Any]:
    values = clean_row({name: getattr(event, name) for name in END_FIELDS})
    for said in ("progress", "object_ref"):
        if not values[said]:
            del values[said]  # what was said before the deferral holds
    return values
