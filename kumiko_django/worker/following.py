"""Following a job from its queue to its end, for whoever has dispatched it and waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from django.db import connections, router

from kumiko_django.broker.lookup import find_job
from kumiko_django.definitions.options import Lane
from kumiko_django.history.models import JobRun, RunStatus

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 0.5
"""Seconds between two looks."""
SETTLED_SECONDS: Final = 5.0
"""How far the history may be behind the queue before a job that is in neither is taken for gone."""
_UNDER_WAY: Final = (RunStatus.RUNNING, RunStatus.DEFERRED)


class NotEnded(Exception):
    """The time was over before the job had ended."""


class Gone(Exception):
    """The job is in no queue any more, and the history does not say how it ended."""


def follow(lane: Lane, job_id: str, timeout: float | None, tell: Callable[[str], None]) -> JobRun:
    """Wait for the end of a job.

    Args:
        lane: Its lane.
        job_id: Its id.
        timeout: How many seconds at most; None for as long as it takes.
        tell: Told what happens, a line at a time.

    Returns:
        The run with which it ended.

    Raises:
        NotEnded: The time was over; the job goes on.
        Gone: It was removed.
        BrokerUnavailable: Redis does not answer.
        DatabaseError: The history's database does not.
    """
    began, pause, told = time.monotonic(), FIRST_PAUSE, set[tuple[object, str]]()
    missing_since: float | None = None
    while True:
        queued = find_job(job_id, [lane])
        runs = runs_of(lane, job_id)
        for run in runs:
            if (seen := (run.id, line_of(run))) not in told:
                told.add(seen)
                tell(seen[1])
        if (last := _last(runs)) is not None:
            return last
        now = time.monotonic()
        missing_since = None if queued is not None else missing_since or now
        if missing_since is not None and now - missing_since > SETTLED_SECONDS:
            raise Gone
        if timeout is not None and now - began >= timeout:
            raise NotEnded
        left = LONGEST_PAUSE if timeout is None else began + timeout - now
        time.sleep(max(min(pause, left), 0.0))
        pause = min(pause * 1.5, LONGEST_PAUSE)


def runs_of(lane: Lane, job_id: str) -> list[JobRun]:
    """The runs of a job on record, oldest first.

    Raises:
        DatabaseError: The history's database does not answer.
    """
    alias = router.db_for_read(JobRun)
    try:
        return list(JobRun.objects.using(alias).of_job(lane, job_id))
    except Exception:
        connections[alias].close_if_unusable_or_obsolete()
        raise


def line_of(run: JobRun) -> str:
    """A run in one line: which attempt, what it does or came to."""
    attempt = f"attempt {run.attempt} of {run.max_attempts}"
    text = f"{run.status}, {attempt}"
    if run.status in _UNDER_WAY and run.progress:
        return f"{text}: {_progress(run.progress)}"
    why = run.short_error or run.reason
    return f"{text}: {why}" if why else text


def _progress(progress: object) -> str:
    if not isinstance(progress, dict):
        return str(progress)
    done, total, message = (progress.get(key) for key in ("done", "total", "message"))
    numbers = "" if done is None else str(done) if total is None else f"{done} of {total}"
    return " ".join(str(part) for part in (numbers, message) if part)


def _last(runs: list[JobRun]) -> JobRun | None:
    """The run that ended the job, if one did. A job that was sent again is as good as new."""
    newest = runs[-1] if runs else None
    if newest is None or not newest.final or newest.status in _UNDER_WAY:
        return None
    return newest
