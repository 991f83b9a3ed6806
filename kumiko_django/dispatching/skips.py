"""Telling of jobs that the door has not let in (design 6).

The one who dispatches sees it in the answer; after a commit nobody does, so there it is a row of
the history. Either way a signal tells.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from asgiref.sync import sync_to_async

from kumiko_django import signals
from kumiko_django.broker.door import Decision
from kumiko_django.broker.envelope import read_metadata, read_payload
from kumiko_django.broker.producer import NewJob
from kumiko_django.definitions.job import JobDefinition
from kumiko_django.types.ids import SYSTEM, uuid7
from kumiko_django.types.runinfo import RunInfo

if TYPE_CHECKING:
    from kumiko_django.history.models import JobRun

logger = logging.getLogger("kumiko_django.dispatch")


@dataclass(frozen=True, slots=True)
class _Skip:
    job: NewJob
    reason: str
    run: RunInfo


def report(
    definition: JobDefinition, jobs: Sequence[NewJob], decisions: Sequence[Decision]
) -> None:
    """Send ``job_skipped`` for what was not accepted."""
    if _all_queued(decisions) or not signals.job_skipped.has_listeners(definition):
        return
    for skip in _skips(definition, jobs, decisions):
        signals.job_skipped.send_robust(sender=definition, run=skip.run, reason=skip.reason)


async def areport(
    definition: JobDefinition, jobs: Sequence[NewJob], decisions: Sequence[Decision]
) -> None:
    """Do the same from async code."""
    if _all_queued(decisions) or not signals.job_skipped.has_listeners(definition):
        return
    for skip in _skips(definition, jobs, decisions):
        await signals.job_skipped.asend_robust(sender=definition, run=skip.run, reason=skip.reason)


def _all_queued(decisions: Sequence[Decision]) -> bool:
    """Whether there is nothing to tell, as after nearly every dispatch; Django is asked else."""
    return all(made.status == "queued" for made in decisions)


def record(
    definition: JobDefinition, jobs: Sequence[NewJob], decisions: Sequence[Decision]
) -> None:
    """Write what was not accepted to the history, and send ``job_skipped``. Does not raise."""
    skips = list(_skips(definition, jobs, decisions))
    if not skips:
        return
    # Here, since dispatch can be imported before Django is set up, and models cannot.
    from kumiko_django.history.models import JobRun

    try:
        JobRun.objects.bulk_create(map(_row, skips), ignore_conflicts=True)
    except Exception:
        logger.exception(
            "%d skipped jobs of %s are not on record", len(skips), definition.qualified_name
        )
    for skip in skips:
        signals.job_skipped.send_robust(sender=definition, run=skip.run, reason=skip.reason)


async def arecord(
    definition: JobDefinition, jobs: Sequence[NewJob], decisions: Sequence[Decision]
) -> None:
    """Do the same from async code."""
    if any(_skips(definition, jobs, decisions)):
        await sync_to_async(record)(definition, jobs, decisions)


def _skips(
    definition: JobDefinition, jobs: Sequence[NewJob], decisions: Iterable[Decision]
) -> Iterator[_Skip]:
    for job, decision in zip(jobs, decisions, strict=False):
        if decision.is_accepted:
            continue
        reason = decision.reason or decision.status
        info = RunInfo(
            job_name=definition.qualified_name,
            job_id=job.job_id,
            run_id=uuid7(),
            tenant_id=read_metadata(job.data).tenant_id or SYSTEM,
            attempt=0,
            final=True,
        )
        yield _Skip(job, reason, info)


def _row(skip: _Skip) -> JobRun:
    from kumiko_django.history.models import JobRun, RunStatus

    job, meta = skip.job, read_metadata(skip.job.data)
    dispatched_at = dt.datetime.fromtimestamp(job.timestamp_ms / 1000, dt.UTC)
    return JobRun(
        id=skip.run.run_id,
        job_name=skip.run.job_name,
        lane=job.lane,
        queue_job_id=job.job_id,
        queue_created_at=dispatched_at,
        attempt=0,
        max_attempts=job.options.attempts,
        start=0,
        tenant_id=skip.run.tenant_id,
        status=RunStatus.SKIPPED,
        final=True,
        reason=skip.reason,
        payload=read_payload(job.data),
        triggered_by_id=meta.triggered_by_id,
        trigger=meta.trigger_name or "",
        correlation_id=meta.correlation_id or "",
        trace_id="" if meta.trace is None else meta.trace.trace_id,
        enqueued_at=dispatched_at,
        started_at=dispatched_at,
        finished_at=dispatched_at,
        duration_ms=0,
    )
