"""Runs as the demo looks at them: read from the history, and compared with what was told."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Run:
    """A row of the history."""

    id: str
    job_id: str
    job: str
    tenant: str
    lane: str
    attempt: int
    max_attempts: int
    status: str
    final: bool = False
    duration_ms: int | None = None
    error: str = ""
    progress: dict[str, Any] = field(default_factory=dict)

    @property
    def is_running(self) -> bool:
        return self.status == "running"

    @property
    def ends_job(self) -> bool:
        """Whether no other run of the job follows."""
        return self.final or self.status == "completed"


@dataclass(frozen=True)
class JobStory:
    """A job as a whole: whose it is, and how its runs ended, one after another."""

    tenant: str
    job: str
    lane: str
    outcomes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.tenant} {self.job} (lane {self.lane}): {', '.join(self.outcomes)}"


def finished_stories(runs: Iterable[Run]) -> Counter[JobStory]:
    """What has become of the jobs that have ended, whatever order the runs come in."""
    by_job: dict[str, list[Run]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.id):
        by_job[run.job_id].append(run)
    return Counter(
        JobStory(last.tenant, last.job, last.lane, tuple(run.status for run in of_job))
        for of_job in by_job.values()
        if (last := of_job[-1]).ends_job
    )


def differences(told: Counter[JobStory], runs: Iterable[Run]) -> list[str]:
    """What did not come out as told: jobs that are missing, and jobs that nobody told of."""
    came_out = finished_stories(runs)
    missing = [f"{n} x missing: {story}" for story, n in (told - came_out).items()]
    untold = [f"{n} x not told: {story}" for story, n in (came_out - told).items()]
    return missing + untold


def read_runs() -> list[Run]:
    """All runs in the history, oldest first."""
    from kumiko_django.models import JobRun  # models need Django to be set up

    columns = JobRun.objects.order_by("id").only(
        "queue_job_id", "job_name", "tenant_id", "lane", "attempt", "max_attempts", "status",
        "final", "duration_ms", "error", "progress",
    )  # fmt: skip
    return [
        Run(
            id=str(row.pk),
            job_id=row.queue_job_id,
            job=row.job_name,
            tenant=row.tenant_id,
            lane=row.lane,
            attempt=row.attempt,
            max_attempts=row.max_attempts,
            status=row.status,
            final=row.final,
            duration_ms=row.duration_ms,
            error=row.error,
            progress=row.progress or {},
        )
        for row in columns
    ]
