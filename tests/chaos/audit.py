"""What has to hold for every single job after its workers were killed (design 8 and 9)."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kumiko_django.history.models import JobRun, JobRunLog
from tests.chaos.evidence import Evidence

COLUMNS = (
    "id", "queue_job_id", "status", "final", "attempt", "start", "worker", "started_at"
)  # fmt: skip


@dataclass(frozen=True)
class Expected:
    """What a job has to come to, apart from being completed."""

    fails_once: bool
    lines: int


@dataclass
class Findings:
    """Figures of all jobs. Recoveries are seconds from a worker's death to the job's next start."""

    jobs: int = 0
    rows: int = 0
    lost: int = 0
    lost_by_living: int = 0
    failed: int = 0
    called_again: int = 0
    recoveries: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def slowest_recovery(self) -> float:
        return max(self.recoveries)


def audit(
    expected: Mapping[str, Expected], evidence: Evidence, deaths: Mapping[int, float]
) -> Findings:
    """Look at every job; what does not stand as it has to is told in ``faults``.

    Args:
        expected: The jobs that were dispatched, by id.
        evidence: Looks at the queue and the rows.
        deaths: When processes were killed, by their id; seconds since 1970.
    """
    rows = _rows_by_job()
    losses = evidence.losses(list(expected))
    calls = evidence.calls()
    lines = _lines_of_completed_runs()
    faults = [f"rows of no job of ours: {job_id}" for job_id in set(rows) - set(expected)]
    not_completed = set(expected) - set(evidence.queue.completed)
    faults += [f"not completed in the queue: {job_id}" for job_id in not_completed]
    faults += [f"left in the queue: {field}" for field in evidence.unrecorded()]
    for job_id, job in expected.items():
        complaints = [
            *_wrong_rows(rows[job_id], job, losses[job_id]),
            *_wrong_calls(rows[job_id], job, calls.get(job_id, 0)),
            *_wrong_lines(rows[job_id], job, lines),
        ]
        faults += [f"{job_id}: {each}; {_shown(rows[job_id])}" for each in complaints]
    found = _findings(expected, rows, calls, deaths)
    found.faults = faults
    return found


def _rows_by_job() -> dict[str, list[dict[str, Any]]]:
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in JobRun.objects.order_by("start", "id").values(*COLUMNS).iterator(5000):
        rows[row["queue_job_id"]].append(row)
    return rows


def _lines_of_completed_runs() -> dict[Any, list[tuple[int, Any]]]:
    lines: dict[Any, list[tuple[int, Any]]] = defaultdict(list)
    stored = JobRunLog.objects.filter(run__status="completed").order_by("run", "number")
    for run, number, data in stored.values_list("run", "number", "data").iterator(5000):
        lines[run].append((number, data))
    return lines


def _wrong_rows(rows: list[dict[str, Any]], job: Expected, losses: int) -> Iterator[str]:
    statuses = Counter(row["status"] for row in rows)
    wanted = Counter(completed=1, lost=losses, failed=int(job.fails_once))
    if +statuses != +wanted:
        yield f"statuses {dict(+statuses)}, not {dict(+wanted)}"
    if [row["status"] for row in rows if row["final"]] != ["completed"]:
        yield "not exactly the completed run is final"
    if rows and rows[-1]["status"] != "completed":
        yield "the last start is not the completed one"
    if rows and rows[-1]["attempt"] != 1 + job.fails_once:
        yield f"completed at attempt {rows[-1]['attempt']}"
    starts = [row["start"] for row in rows]
    if len(set(starts)) != len(starts):
        yield f"starts {starts}"


def _wrong_calls(rows: list[dict[str, Any]], job: Expected, calls: int) -> Iterator[str]:
    """A call has a row; a lost run may not have come to its call."""
    if not 1 + job.fails_once <= calls <= len(rows):
        yield f"its handler was called {calls} times"


def _wrong_lines(
    rows: list[dict[str, Any]], job: Expected, lines: Mapping[Any, list[tuple[int, Any]]]
) -> Iterator[str]:
    wanted = [(number, {"number": number}) for number in range(1, job.lines + 1)]
    for row in rows:
        if row["status"] == "completed" and lines.get(row["id"], []) != wanted:
            yield f"the log of its completed run is {lines.get(row['id'], [])}"


def _shown(rows: list[dict[str, Any]]) -> str:
    return ", ".join(
        f"start {row['start']} {row['status']}{' final' if row['final'] else ''} "
        f"attempt {row['attempt']} by {row['worker'] or '?'}"
        for row in rows
    )


def _findings(
    expected: Mapping[str, Expected],
    rows: Mapping[str, list[dict[str, Any]]],
    calls: Mapping[str, int],
    deaths: Mapping[int, float],
) -> Findings:
    found = Findings(jobs=len(expected), rows=sum(map(len, rows.values())))
    found.failed = sum(job.fails_once for job in expected.values())
    found.called_again = sum(calls.values()) - found.jobs - found.failed
    for of_job in rows.values():
        for row, following in itertools.pairwise(of_job):
            if row["status"] != "lost":
                continue
            found.lost += 1
            if not row["worker"]:  # written by another, that did not know whose it was
                continue
            died_at = deaths.get(int(row["worker"].split(":")[1]))
            if died_at is None:
                found.lost_by_living += 1
            else:
                found.recoveries.append(following["started_at"].timestamp() - died_at)
    return found
