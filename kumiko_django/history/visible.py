"""Writing what tenants see, in the commit that puts a run on record (B184a, B184b, P109).

Records of runs are written late, twice, and in any order: by the worker, by the job's next run, or
by whoever finds them beside the queue. So each row is the largest of what has been said of its
subject, by the time at which runs began; saying it again, or something older, changes nothing.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

from django.db import DatabaseError, connections, models

from kumiko_django.history.batch import Batch
from kumiko_django.history.clean import clean_row
from kumiko_django.history.events import RunEnded
from kumiko_django.history.models import RunStatus
from kumiko_django.history.visible_models import TenantVisibleFailure, TenantVisibleRun
from kumiko_django.types.visible import Subject, Visible

_CHUNK: Final = 200
_TRIES: Final = 5
_FIXED: Final = {"id", "tenant_id", "job_name", "subject", "subject_key"}
_Order = tuple[dt.datetime, UUID, bool]


@dataclass(frozen=True, slots=True)
class Seen:
    """Something that a tenant may see of a run.

    Attributes:
        visible: What it may see.
        run_id: The run.
        ended: How it ended, or was deferred; None while it runs.
    """

    visible: Visible
    run_id: UUID
    ended: RunEnded | None

    @property
    def order(self) -> _Order:
        """Its place among all that is said of the subject."""
        return self.visible.started_at, self.run_id, self.ended is not None


def shows_something(batch: Batch) -> bool:
    """Whether tenants see anything of the runs of a batch."""
    starts = [*batch.starts.values(), *(turn.start for turn in batch.turns if turn.start)]
    if any(start.visible is not None and start.visible.run is not None for start in starts):
        return True
    return any(ended.event.visible is not None for ended in batch.all_ended())


def seen_in(batch: Batch, results: Mapping[UUID, bool | Exception]) -> Iterator[Seen]:
    """What tenants may see of the events that stand in the record.

    Args:
        batch: The events, with the results of its turns.
        results: What became of its other ends.
    """
    for run_id, start in batch.starts.items():
        if start.visible is not None and run_id not in batch.ends:
            yield Seen(start.visible, run_id, None)
    for run_id, ended in batch.ends.items():
        if ended.event.visible is not None and results.get(run_id) is True:
            yield Seen(ended.event.visible, run_id, ended.event)
    for turn in batch.turns:
        event = None if turn.ended is None else turn.ended.event
        said = turn.start if event is None else event
        if said is not None and said.visible is not None and turn.result is True:
            yield Seen(said.visible, turn.run_id, event)


def write_visible(alias: str, seen: Iterable[Seen]) -> None:
    """Write it to database ``alias``, where a transaction is open.

    Raises:
        DatabaseError: The database is away, or refuses it.
    """
    failures: dict[UUID, list[Seen]] = defaultdict(list)
    runs: dict[UUID, list[Seen]] = defaultdict(list)
    for each in seen:
        visible = each.visible
        if visible.failure is not None and _says(each) is not None:
            failures[_row_id(visible, visible.failure)].append(each)
        if visible.run is not None:
            runs[_row_id(visible, visible.run)].append(each)
    # The same order in every process, or two of them could wait for each other.
    _write(TenantVisibleFailure.states.using(alias), failures, _new_failure, _merge_failure)
    _write(TenantVisibleRun.objects.using(alias), runs, _new_run, _merge_run)


def _says(seen: Seen) -> bool | None:
    """Whether a run has succeeded; None if it says nothing of that."""
    if seen.ended is None:
        return None
    if seen.ended.status == "completed":
        return True
    failed = seen.ended.status in ("failed", "quarantined")
    return False if failed and seen.ended.final else None


def _row_id(visible: Visible, subject: Subject) -> UUID:
    """One for each tenant, job and subject."""
    text = json.dumps([visible.tenant_id, visible.job_name, subject.key])
    return UUID(bytes=sha256(text.encode("utf-8", "surrogatepass")).digest()[:16])


def _write(
    rows: models.QuerySet[Any],
    wanted: Mapping[UUID, list[Seen]],
    new: Callable[[UUID, Seen], Any],
    merge: Callable[[Any, Seen], bool],
) -> None:
    ids = sorted(wanted)
    for first in range(0, len(ids), _CHUNK):
        portion = ids[first : first + _CHUNK]
        for _ in range(_TRIES):
            missing = _write_portion(rows, portion, wanted, new, merge)
            if not missing:
                break
            portion = missing  # deleted by whoever prunes, in between
        else:
            raise DatabaseError("the records that tenants see cannot be inserted")


def _write_portion(
    rows: models.QuerySet[Any],
    ids: Sequence[UUID],
    wanted: Mapping[UUID, list[Seen]],
    new: Callable[[UUID, Seen], Any],
    merge: Callable[[Any, Seen], bool],
) -> list[UUID]:
    """Insert what is not there, and bring the rest up to date; the ids of what still is not."""
    made = [new(row_id, wanted[row_id][0]) for row_id in ids]
    for row in made:
        _merge_all(row, wanted[row.pk], merge)
    rows.bulk_create(made, ignore_conflicts=True)
    # Locked, so that nobody changes them between reading and writing.
    present = list(rows.filter(pk__in=ids).order_by("pk").select_for_update())
    changed = [row for row in present if _merge_all(row, wanted[row.pk], merge)]
    if changed:
        _update(rows, changed)
    found = {row.pk for row in present}
    return [row_id for row_id in ids if row_id not in found]


def _update(rows: models.QuerySet[Any], changed: list[Any]) -> None:
    """Write rows that are there, as an insert that finds them.

    Django's ``bulk_update`` takes seconds for what this does in milliseconds.
    """
    names = [field.name for field in rows.model._meta.concrete_fields]
    features = connections[rows.db].features
    rows.bulk_create(
        changed,
        update_conflicts=True,
        update_fields=[name for name in names if name not in _FIXED],
        unique_fields=["id"] if features.supports_update_conflicts_with_target else None,
    )


def _merge_all(row: Any, seen: Iterable[Seen], merge: Callable[[Any, Seen], bool]) -> bool:
    changes = [merge(row, each) for each in seen]
    return any(changes)


def _identity(row_id: UUID, visible: Visible, subject: Subject) -> dict[str, Any]:
    values = {
        "tenant_id": visible.tenant_id,
        "job_name": visible.job_name,
        "subject": subject.values,
        "subject_key": subject.key,
    }
    return {"id": row_id, **clean_row(values)}


def _new_run(row_id: UUID, seen: Seen) -> TenantVisibleRun:
    assert seen.visible.run is not None  # noqa: S101  (for the type checker)
    row = TenantVisibleRun(**_identity(row_id, seen.visible, seen.visible.run))
    _set_run(row, seen)
    return row


def _merge_run(row: TenantVisibleRun, seen: Seen) -> bool:
    if seen.order <= (row.started_at, row.run_id, row.status != RunStatus.RUNNING):
        return False
    _set_run(row, seen)
    return True


def _set_run(row: TenantVisibleRun, seen: Seen) -> None:
    row.run_id, row.started_at = seen.run_id, seen.visible.started_at
    ended = seen.ended
    row.status = RunStatus.RUNNING if ended is None else ended.status
    row.final = ended is not None and ended.final
    is_open = ended is None or ended.status == "deferred"
    row.finished_at = None if ended is None or is_open else ended.finished_at


def _new_failure(row_id: UUID, seen: Seen) -> TenantVisibleFailure:
    assert seen.visible.failure is not None  # noqa: S101  (for the type checker)
    return TenantVisibleFailure(**_identity(row_id, seen.visible, seen.visible.failure))


def _merge_failure(row: TenantVisibleFailure, seen: Seen) -> bool:
    ended = seen.ended
    assert ended is not None  # noqa: S101  (for the type checker)
    began, run_id = seen.visible.started_at, seen.run_id
    if _says(seen):
        if not _is_later(began, run_id, row.success_started_at, row.success_run_id):
            return False
        row.success_started_at, row.success_run_id = began, run_id
        row.succeeded_at = ended.finished_at
    else:
        if not _is_later(began, run_id, row.started_at, row.run_id):
            return False
        row.started_at, row.run_id = began, run_id
        row.failed_at, row.message_key = ended.finished_at, seen.visible.message_key
        row.resolved_at = None
    if row.resolved_at is None and _is_resolved(row):
        row.resolved_at = row.succeeded_at
    return True


def _is_resolved(row: TenantVisibleFailure) -> bool:
    success, run_id = row.success_started_at, row.success_run_id
    if row.run_id is None or success is None or run_id is None:
        return False
    return _is_later(success, run_id, row.started_at, row.run_id)


def _is_later(
    began: dt.datetime, run_id: UUID, than: dt.datetime | None, than_run: UUID | None
) -> bool:
    return than is None or than_run is None or (began, run_id) > (than, than_run)
