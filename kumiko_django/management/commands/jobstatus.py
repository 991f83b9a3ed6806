"""``manage.py jobstatus``: where a job is, and what its runs came to."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from collections.abc import Iterable, Iterator
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError
from django.utils import timezone

from kumiko_django.broker.lookup import QueuedJob, find_job
from kumiko_django.definitions.options import LANES, Lane
from kumiko_django.exceptions import BrokerUnavailable, KumikoError
from kumiko_django.history.models import JobRun
from kumiko_django.worker.exit_codes import ExitCode
from kumiko_django.worker.following import line_of, runs_of

_COLUMNS = (
    "id", "job_name", "lane", "tenant_id", "status", "final", "attempt", "max_attempts", "start",
    "started_at", "finished_at", "duration_ms", "worker", "reason", "error", "progress", "result",
)  # fmt: skip


class Command(BaseCommand):
    """Asks the queue and the history, prints."""

    help = "Tell where a job is in its queue, and what its runs came to."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("job_id", help="The id that dispatch gave, or the history shows.")
        parser.add_argument("--lane", choices=LANES, help="Look in this lane only.")
        parser.add_argument(
            "--json", action="store_true", dest="as_json", help="Print JSON, for programs."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the command."""
        job_id: str = options["job_id"]
        lanes: tuple[Lane, ...] = LANES if options["lane"] is None else (options["lane"],)
        try:
            queued = find_job(job_id, lanes)
            runs = [run for lane in lanes for run in runs_of(lane, job_id)]
            elsewhere = [] if queued or runs else _lanes_of(job_id, set(LANES) - set(lanes))
        except BrokerUnavailable as error:
            raise CommandError(str(error), returncode=ExitCode.BROKER_UNAVAILABLE) from error
        except KumikoError as error:
            raise CommandError(str(error), returncode=ExitCode.CONFIGURATION) from error
        except DatabaseError as error:
            told = f"The history cannot be read: {str(error).strip()}"
            raise CommandError(told, returncode=ExitCode.DATABASE_UNAVAILABLE) from error
        if queued is None and not runs:
            told = f"There is no job {job_id!r}: neither in a queue nor in the history."
            if elsewhere:
                told = f"The job {job_id!r} is not in lane {lanes[0]}, but in {elsewhere[0]}."
            raise CommandError(told, returncode=ExitCode.FAULT)
        if options["as_json"]:
            self.stdout.write(_as_json(job_id, queued, runs))
            return
        for line in (*_queue_lines(queued), *_run_lines(runs)):
            self.stdout.write(line)


def _lanes_of(job_id: str, lanes: Iterable[Lane]) -> list[Lane]:
    return [lane for lane in lanes if find_job(job_id, [lane]) or runs_of(lane, job_id)]


def _queue_lines(queued: QueuedJob | None) -> Iterator[str]:
    if queued is None:
        yield "Queue: not there any more"
        return
    yield f"Queue: {queued.state}, lane {queued.lane}, {queued.name}"
    yield f"  queued {_moment(queued.created_at)}"
    if queued.due_at is not None:
        yield f"  due {_moment(queued.due_at)}"
    if queued.finished_at is not None:
        yield f"  ended {_moment(queued.finished_at)}"
    yield f"  {queued.attempts_made} of {queued.max_attempts} attempts ended"
    if queued.losses:
        yield f"  lost its worker {queued.losses} times"
    if queued.error:
        yield f"  error: {queued.error.strip().splitlines()[0]}"


def _run_lines(runs: list[JobRun]) -> Iterator[str]:
    if not runs:
        yield "Runs: none on record"
        return
    yield f"Runs: {len(runs)}"
    for run in runs:
        took = "" if run.duration_ms is None else f" ({run.duration_ms / 1000:g} s)"
        yield f"  {_moment(run.started_at)}  {line_of(run)}{took}  {run.id}"


def _as_json(job_id: str, queued: QueuedJob | None, runs: list[JobRun]) -> str:
    plain = {
        "job_id": job_id,
        "queue": None if queued is None else dataclasses.asdict(queued),
        "runs": [{name: getattr(run, name) for name in _COLUMNS} for run in runs],
    }
    return json.dumps(plain, indent=2, ensure_ascii=False, default=_plain)


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, dt.datetime) else str(value)


def _moment(moment: dt.datetime | None) -> str:
    return "?" if moment is None else f"{timezone.localtime(moment):%Y-%m-%d %H:%M:%S %Z}"
