"""Writing one batch of run events in one transaction, so that repeating it changes nothing.

All goes well: a few statements for the whole batch. Something stands in the way: everything again,
each event for itself, so that one odd record does not take those of other runs with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from django.db import DatabaseError, connections, transaction
from django.db.models import Max

from kumiko_django.history.batch import Batch, Ended
from kumiko_django.history.bulk import CHUNK, takes_records, upsert
from kumiko_django.history.clean import clean_row, clean_text
from kumiko_django.history.events import LogLine, RunEnded, RunStarted
from kumiko_django.history.health import is_away
from kumiko_django.history.lost import (
    guessed_row,
    insert_alone,
    same_job,
    see_to_lost,
    take_place,
)
from kumiko_django.history.models import JobRun, JobRunLog, RunStatus
from kumiko_django.history.record import END_FIELDS, START_FIELDS, decode, encode, row_of
from kumiko_django.history.turns import Insert, apply_turn
from kumiko_django.history.visible import seen_in, shows_something, write_visible
from kumiko_django.types.jsonable import JSON

logger = logging.getLogger("kumiko_django.history")

T = TypeVar("T")
Result = bool | Exception
"""Whether the end of a run stands in the record, or why it could not be written."""
Inserted = list[tuple[JobRun, int]]
"""Rows that were put on record, each with how many lost runs its job has had. These are looked for
last: a run whose end is in the same batch must not stand on running, or deferred, by then."""

_TRIES = 5


def write(alias: str, batch: Batch) -> dict[UUID, Result]:
    """Write the events to database ``alias``.

    Returns:
        For each ended run, what became of its end.

    Raises:
        DatabaseError: The database is away (see :func:`is_away`); nothing was written, or all was
            and the answer is lost. Repeating is right in both cases.
    """
    try:
        return _write_together(alias, batch)
    except Exception as error:
        if is_away(error):
            raise
        logger.debug("A batch cannot be written at once; each event for itself", exc_info=True)
        return _write_apart(alias, batch)


def _write_together(alias: str, batch: Batch) -> dict[UUID, Result]:
    if takes_records(alias) and _is_one_statement(batch) and connections[alias].get_autocommit():
        return _write_rows(alias, batch)  # a transaction of its own, in one exchange
    with transaction.atomic(using=alias):
        if takes_records(alias):
            result = _write_rows(alias, batch)
        else:
            rows = [_row(start, batch.end_of(run_id)) for run_id, start in batch.starts.items()]
            JobRun.objects.using(alias).bulk_create(rows, batch_size=CHUNK)
            result = dict.fromkeys(batch.starts.keys() & batch.ends.keys(), True)
        inserted: Inserted = []
        insert = partial(_insert_one, inserted)
        for run_id, ended in batch.ends.items():
            if run_id not in result:
                result[run_id] = _end_one(alias, ended, insert)
        for turn in batch.turns:
            turn.result = apply_turn(alias, turn, insert)
        for run_id, start in batch.starts.items():
            inserted.append((_row(start, batch.end_of(run_id)), start.losses))
        for row, losses in inserted:
            if row.start > 1 or losses:
                see_to_lost(alias, row, losses)
        for run_id, value in batch.progress.items():
            _update_progress(alias, run_id, value)
        _insert_logs(alias, batch.log_lines())
        if shows_something(batch):
            write_visible(alias, seen_in(batch, result))
    return result


def _is_one_statement(batch: Batch) -> bool:
    if batch.logs or batch.progress or batch.turns or shows_something(batch):
        return False
    if any(start.start > 1 or start.losses for start in batch.starts.values()):
        return False
    return all(ended.record or run_id in batch.starts for run_id, ended in batch.ends.items())


def _write_rows(alias: str, batch: Batch) -> dict[UUID, Result]:
    """All rows that are known as a whole, and what became of the ends among them."""
    rows = {run_id: row_of(ended.record) for run_id, ended in batch.ends.items() if ended.record}
    for run_id, start in batch.starts.items():
        if run_id not in rows:
            rows[run_id] = encode(start, batch.end_of(run_id))
    result: dict[UUID, Result] = dict.fromkeys(batch.ends.keys() & rows.keys(), True)
    if rows and upsert(alias, list(rows.values())) < len(rows):
        # Some had an end already: their own, written before an answer was lost, or another's.
        for run_id in result:
            result[run_id] = _stands(alias, batch.ends[run_id].event)
    return result


def _write_apart(alias: str, batch: Batch) -> dict[UUID, Result]:
    result: dict[UUID, Result] = {}
    inserted: Inserted = []
    insert = partial(_insert_one, inserted)
    with transaction.atomic(using=alias):
        for run_id, ended in batch.ends.items():
            if run_id not in batch.starts:
                result[run_id] = _alone(alias, lambda: _end_one(alias, ended, insert))  # noqa: B023
        for run_id, start in batch.starts.items():
            end = batch.end_of(run_id)
            written = _alone(alias, lambda: insert(alias, start, end))  # noqa: B023
            if end is not None:
                result[run_id] = written
        for turn in batch.turns:
            turn.result = _alone(alias, lambda: apply_turn(alias, turn, insert))  # noqa: B023
        for row, losses in inserted:
            _alone(alias, lambda: see_to_lost(alias, row, losses))  # noqa: B023
        for run_id, value in batch.progress.items():
            _alone(alias, lambda: _update_progress(alias, run_id, value))  # noqa: B023
        for entry in batch.log_lines():
            _alone(alias, lambda: _insert_logs(alias, [entry]))  # noqa: B023
        for seen in seen_in(batch, result):
            _alone(alias, lambda: write_visible(alias, [seen]))  # noqa: B023
    return result


def _alone(alias: str, step: Callable[[], T]) -> T | Exception:
    """Do one step in a transaction of its own inside the big one; what goes wrong is its result."""
    try:
        with transaction.atomic(using=alias):
            return step()
    except Exception as error:
        if is_away(error):
            raise
        logger.exception("An event of a run cannot be recorded")
        return error


def _row(start: RunStarted, ended: RunEnded | None) -> JobRun:
    values: dict[str, Any] = {name: getattr(start, name) for name in START_FIELDS}
    if ended is None:
        values["status"] = RunStatus.RUNNING
    else:
        values.update({name: getattr(ended, name) for name in END_FIELDS})
    values["deferrals"] = start.deferrals
    if ended is not None and ended.status == "deferred":
        values |= {"finished_at": None, "resume_at": ended.resume_at, "deferrals": ended.deferrals}
    return JobRun(id=start.run_id, **clean_row(values))


def _end_one(alias: str, ended: Ended, insert: Insert) -> bool:
    """The end of a run whose start has been written, or should have been: then the whole of it."""
    if _update_ended(alias, ended.event):
        return True
    if not ended.record or JobRun.objects.using(alias).filter(id=ended.event.run_id).exists():
        return False
    start, event, _ = decode(ended.record)
    return insert(alias, start, event)


def _insert_one(inserted: Inserted, alias: str, start: RunStarted, ended: RunEnded | None) -> bool:
    row = _row(start, ended)
    runs = JobRun.objects.using(alias)
    if runs.filter(id=row.id).exists():
        # Written by the try whose answer was lost, or before the run had ended.
        return True if ended is None else _update_ended(alias, ended)
    for _ in range(_TRIES):
        try:
            insert_alone(alias, row)
            break
        except DatabaseError as error:
            if is_away(error):
                raise
            last = error
        guessed = guessed_row(alias, row)
        if guessed is not None:
            # The job's next run has taken this one for lost before it was on record.
            return take_place(alias, row, guessed, ended)
        highest = same_job(alias, row).aggregate(top=Max("start"))["top"]
        if highest is not None and highest >= row.start:
            # Another run holds the key: the queue was restored, or the job retried from outside.
            row.start = highest + 1
        else:
            logger.warning("The record of run %s is kept without its payload: %s", row.id, last)
            row.payload = row.result = row.progress = None
            row.error, row.traceback = clean_text(row.error, 1000), ""
            row.reason = "record incomplete"
    else:
        raise last
    inserted.append((row, start.losses))
    return True


def _update_ended(alias: str, event: RunEnded) -> bool:
    """Conditional, so that whoever closed the run first is not overwritten (P78)."""
    values = clean_row({name: getattr(event, name) for name in END_FIELDS})
    runs = JobRun.objects.using(alias).filter(id=event.run_id)
    if runs.filter(status=RunStatus.RUNNING).update(**values):
        return True
    return _stands(alias, event)


def _stands(alias: str, event: RunEnded) -> bool:
    """Whether this end is on record. A repeat after a lost answer finds its own already there."""
    same = JobRun.objects.using(alias).filter(id=event.run_id, status=event.status)
    return same.filter(finished_at=event.finished_at).exists()


def _update_progress(alias: str, run_id: UUID, value: JSON) -> None:
    JobRun.objects.using(alias).filter(id=run_id, status=RunStatus.RUNNING).update(
        **clean_row({"progress": value})
    )


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
    if not rows:
        return
    # Lines of a run whose row is gone (deleted by hand while it ran) would break the batch.
    run_ids = {row.run_id for row in rows}
    present = set(JobRun.objects.using(alias).filter(id__in=run_ids).values_list("id", flat=True))
    JobRunLog.objects.using(alias).bulk_create(
        [row for row in rows if row.run_id in present], batch_size=CHUNK, ignore_conflicts=True
    )
