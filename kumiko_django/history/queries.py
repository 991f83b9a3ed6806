"""What the admin asks the history: each answer is bounded and comes from an index."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db.models import Q, QuerySet

from kumiko_django.history.models import JobRun, JobRunLog, JobRunQuerySet
from kumiko_django.types.ids import first_id_at as first_id_at  # (also for those who ask here)

_RECENT: Final = 1_000
_LOG_LINES_AT_EACH_END: Final = 500
_RUNS_OF_A_JOB: Final = 50
_SIDES: Final = ("newer", "older")


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the list, newest first: what lies beyond the run ``anchor``, on which side."""

    anchor: UUID
    newer: bool = False

    @classmethod
    def parse(cls, text: str | None) -> Position | None:
        """What :meth:`__str__` wrote; None for anything else, which is the list's beginning."""
        side, _, anchor = (text or "").partition("-")
        try:
            return cls(UUID(anchor), newer=side == "newer") if side in _SIDES else None
        except ValueError:
            return None

    def __str__(self) -> str:
        return f"{'newer' if self.newer else 'older'}-{self.anchor}"


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows of a list and, where there are more, how to get to them."""

    rows: list[Any]
    newer: Position | None
    older: Position | None


def page(found: QuerySet[Any], position: Position | None, size: int, key: str = "id") -> Page:
    """The ``size`` rows at ``position``: as cheap at the end of the list as at its beginning.

    Args:
        found: All rows of the list.
        position: Where the page is; None for the beginning.
        size: How many rows it has.
        key: The column by which they are sorted: an id of a run, no two of them the same.
    """
    anchor = attrgetter(key)
    if position is not None and position.newer:
        rows = list(found.filter(**{f"{key}__gt": position.anchor}).order_by(key)[: size + 1])
        if len(rows) > size:
            rows = rows[size - 1 :: -1]
            return Page(rows, Position(anchor(rows[0]), newer=True), Position(anchor(rows[-1])))
        # So few that the list's beginning shows them and the next ones.
        position = None
    if position is not None:
        found = found.filter(**{f"{key}__lt": position.anchor})
    rows = list(found.order_by(f"-{key}")[: size + 1])
    older = Position(anchor(rows[size - 1])) if len(rows) > size else None
    rows = rows[:size]
    newer = None
    if position is not None:
        newer = Position(anchor(rows[0]) if rows else position.anchor, newer=True)
    return Page(rows, newer, older)


def search(runs: QuerySet[JobRun], text: str) -> QuerySet[JobRun]:
    """Runs of which ``text`` is exactly the id, the job's id, the correlation id or the object."""
    text = text.strip()
    if not text:
        return runs
    match = Q(queue_job_id=text) | Q(correlation_id=text) | Q(object_ref=text)
    with contextlib.suppress(ValueError):  # not every text is an id
        match |= Q(id=UUID(text))
    return runs.filter(match)


def ended_children(
    lane: str,
    job_ids: Sequence[str],
    since: dt.datetime,
    *,
    wrapper_id: str,
    queued_at: dt.datetime,
) -> set[str]:
    """Which of these jobs of a lane have ended on record, of those queued after ``since``.

    Not those of an earlier wrapper with the same id, whose children had the same ids, too: a boot
    job that was made to run again.

    Args:
        lane: Their lane.
        job_ids: Their ids.
        since: An aware time.
        wrapper_id: The id of the job that makes them.
        queued_at: When that was queued.
    """
    earlier = JobRun.objects.filter(queue_job_id=wrapper_id).exclude(queue_created_at=queued_at)
    runs = JobRun.objects.filter(
        lane=lane, queue_job_id__in=job_ids, enqueued_at__gte=since, final=True
    ).exclude(parent__in=earlier.order_by().values("id"))
    return set(runs.values_list("queue_job_id", flat=True))


class Recent(NamedTuple):
    """Names that the latest runs have, sorted."""

    jobs: list[str]
    tenants: list[str]


def recent_names(tenant_id: str | None = None) -> Recent:
    """Jobs and tenants of the latest runs. All there ever were would cost a look at every run.

    Args:
        tenant_id: Look at those of one tenant only.
    """
    runs = JobRun.objects.order_by("-id")
    if tenant_id is not None:
        runs = runs.filter(tenant_id=tenant_id)
    rows = set(runs.values_list("job_name", "tenant_id")[:_RECENT])
    return Recent(sorted({job for job, _ in rows}), sorted({tenant for _, tenant in rows}))


@dataclass(frozen=True, slots=True)
class LogExcerpt:
    """A run's log, without the middle where it is long: ``first``, the gap, ``last``."""

    first: Sequence[JobRunLog]
    last: Sequence[JobRunLog] = ()

    @property
    def gap(self) -> tuple[int, int] | None:
        """The numbers of the first and the last line that are left out."""
        if not self.last or self.last[0].number == self.first[-1].number + 1:
            return None
        return self.first[-1].number + 1, self.last[0].number - 1


def log_excerpt(run: JobRun, at_each_end: int = _LOG_LINES_AT_EACH_END) -> LogExcerpt:
    """The first and the last lines of the log of ``run``."""
    lines = JobRunLog.objects.filter(run_id=run.id)
    first = list(lines.order_by("number")[:at_each_end])
    if len(first) < at_each_end:
        return LogExcerpt(first)
    rest = lines.filter(number__gt=first[-1].number).order_by("-number")
    return LogExcerpt(first, list(rest[:at_each_end])[::-1])


class RunsOfJob(NamedTuple):
    """The latest runs of one job of the queue, oldest first; whether there are older ones."""

    runs: list[JobRun]
    has_more: bool


def runs_of_same_job(run: JobRun, tenant_id: str | None = None) -> RunsOfJob:
    """All runs of the job that ``run`` ran, that one included.

    Args:
        run: The run.
        tenant_id: Leave out those of others: another producer may give two jobs one id.
    """
    history: JobRunQuerySet = JobRun.objects.for_list()
    if tenant_id is not None:
        history = history.filter(tenant_id=tenant_id)
    latest = history.of_job(run.lane, run.queue_job_id).reverse()
    rows = list(latest[: _RUNS_OF_A_JOB + 1])
    return RunsOfJob(rows[:_RUNS_OF_A_JOB][::-1], len(rows) > _RUNS_OF_A_JOB)
