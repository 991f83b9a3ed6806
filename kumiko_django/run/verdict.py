"""From the outcome of a run to what the queue is told, and from its answer to the history."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

from django.db import DatabaseError

from kumiko_django.broker.carried import deferred_data, settled_data
from kumiko_django.broker.delivery import (
    BARRED,
    Complete,
    Delivery,
    Fail,
    Fate,
    GiveBack,
    Postpone,
    Retry,
    Settlement,
    Verdict,
)
from kumiko_django.history.events import RunEnded
from kumiko_django.history.record import encode
from kumiko_django.history.recorder import Recorder
from kumiko_django.run.observed import RunMetrics
from kumiko_django.run.outcome import (
    Completed,
    Deferred,
    Failed,
    Interrupted,
    Outcome,
    Quarantined,
    Skipped,
)
from kumiko_django.run.reporting import Reporter
from kumiko_django.run.state import Run

logger = logging.getLogger("kumiko_django.run")

LOCK_LOST = "its lock ran out while it ran; the queue gave the job to another worker"
JOB_GONE = "its job was no longer in the queue when it ended"


class Verdicts:
    """Makes verdicts of outcomes. What they are told afterwards goes to the history."""

    def __init__(
        self,
        recorder: Recorder,
        reporter: Reporter,
        written: Callable[[Delivery], None],
        metrics: RunMetrics | None = None,
    ) -> None:
        self._recorder = recorder
        self._metrics = metrics
        self._reporter = reporter
        self._written = written

    def of(self, run: Run, outcome: Outcome) -> Verdict:
        """The outcome for the queue, with the record that it keeps until the history has it."""
        end = run.ended_event(outcome)
        record = ""
        if run.start_event is not None:
            lines = self._recorder.unwritten_lines(run.run_id)
            record = encode(run.start_event, end, lines)
        reported = self._reporter.reports_end(run, outcome)

        async def told(fate: Fate) -> None:
            if fate is Fate.UNTOLD:
                return  # the job's next run takes this one for lost
            try:
                seen = _as_told(end, fate)
                if self._metrics is not None:
                    self._metrics.ended(run, seen)
                # The record says what the run came to here, which is not what the queue has seen.
                kept = record if seen is end else ""
                future = self._record_end(run, seen, kept, awaited=reported)
            except Exception:
                logger.exception("Run %s is not on record", run.run_id)
                return
            if reported and fate is not Fate.VOID and seen.status != "cancelled":
                await _settled(future)
                await self._reporter.report_end(run, outcome)

        return Verdict(_settlement(run, outcome), record, told, takes_next=not reported)

    def _record_end(self, run: Run, end: RunEnded, record: str, *, awaited: bool) -> Future[bool]:
        future = self._recorder.run_ended(end, record, awaited=awaited)
        future.add_done_callback(lambda _: self._look_at(run, future))
        return future

    def _look_at(self, run: Run, future: Future[bool]) -> None:
        """See what became of a record. On the loop: the recorder announces there."""
        error = future.exception()
        name, run_id = run.delivery.job_name, run.run_id
        if error is not None:
            # At a stop without the database, of which the host tells once: the queue keeps it.
            level = (
                logging.DEBUG if isinstance(error, TimeoutError | DatabaseError) else logging.ERROR
            )
            logger.log(level, "Run %s of %s is not on record: %s", run_id, name, error)
            return
        if not future.result():
            logger.warning(
                "Run %s of %s had been closed by another worker; its end here is not recorded",
                run_id, name,
            )  # fmt: skip
        self._written(run.delivery)


def without_record(settlement: Settlement) -> Verdict:
    """The verdict on a run of which nothing is, or can be, recorded."""
    return Verdict(settlement, "", _nothing)


async def _nothing(fate: Fate) -> None:
    """For a run without a record: there is nothing to tell."""


async def _settled(future: Future[bool]) -> None:
    """Wait for a record, whatever becomes of it."""
    with contextlib.suppress(Exception):
        await asyncio.wrap_future(future)


def _as_told(end: RunEnded, fate: Fate) -> RunEnded:
    """The end of a run as the queue has seen it."""
    if fate is Fate.VOID:
        return RunEnded(
            end.run_id, "lost", final=False, finished_at=end.finished_at,
            duration_ms=end.duration_ms, reason=LOCK_LOST, progress=end.progress,
            object_ref=end.object_ref,
            # Of a deferral: if it is on record all the same, the run has gone on elsewhere.
            deferrals=end.deferrals - (end.status == "deferred"),
        )  # fmt: skip
    if fate is Fate.BARRED:
        return replace(end, status="failed", error=BARRED)
    if fate is Fate.GONE and end.status == "deferred":
        return replace(end, status="cancelled", reason=JOB_GONE, final=True, resume_at=None)
    if fate is Fate.GONE and not end.reason:
        return replace(end, reason=JOB_GONE)
    return end


def _settlement(run: Run, outcome: Outcome) -> Settlement:
    match outcome:
        case Deferred(delay_ms=delay):
            data = deferred_data(run.delivery, run.after_deferral(), run.correlation_id)
            return Postpone(delay, data)
        case Failed(error=error, traceback=trace, final=False, retry_ms=delay):
            return Retry(delay, error, trace, settled_data(run.delivery))
        case Interrupted():
            return GiveBack(settled_data(run.delivery))
        case Quarantined(error):
            return Fail(error, forgives_losses=True)
        case _:
            return plain_settlement(outcome)


def plain_settlement(outcome: Completed | Failed | Skipped) -> Settlement:
    """The settlement of an outcome that leaves the job's data as it is."""
    match outcome:
        case Completed(result):
            return Complete(result)
        case Failed(error=error, traceback=trace, final=True):
            return Fail(error, trace)
        case Failed(error=error, traceback=trace, retry_ms=delay):
            return Retry(delay, error, trace)
        case Skipped():
            return Complete()
