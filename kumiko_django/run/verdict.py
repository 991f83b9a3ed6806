"""From the outcome of a run to what the queue is told, and from its answer to the history."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

from django.db import DatabaseError

from kumiko_django.broker.delivery import (
    BARRED,
    Complete,
    Delivery,
    Fail,
    Fate,
    GiveBack,
    Retry,
    Settlement,
    Verdict,
)
from kumiko_django.history.events import RunEnded
from kumiko_django.history.record import encode
from kumiko_django.history.recorder import Recorder
from kumiko_django.run.outcome import Completed, Failed, Interrupted, Outcome, Skipped
from kumiko_django.run.reporting import Reporter
from kumiko_django.run.state import Run

logger = logging.getLogger("kumiko_django.run")

LOCK_LOST = "its lock ran out while it ran; the queue gave the job to another worker"
JOB_GONE = "its job was no longer in the queue when it ended"


class Verdicts:
    """Makes verdicts of outcomes. What they are told afterwards goes to the history."""

    def __init__(
        self, recorder: Recorder, reporter: Reporter, written: Callable[[Delivery], None]
    ) -> None:
        self._recorder = recorder
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
                # The record says what the run came to here, which is not what the queue has seen.
                kept = record if seen is end else ""
                future = self._record_end(run, seen, kept, awaited=reported)
            except Exception:
                logger.exception("Run %s is not on record", run.run_id)
                return
            if reported and fate is not Fate.VOID:
                await _settled(future)
                await self._reporter.report_end(run, outcome)

        return Verdict(_settlement(outcome), record, told, takes_next=not reported)

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


def without_record(outcome: Outcome) -> Verdict:
    """The verdict on a run of which nothing can be recorded."""
    return Verdict(_settlement(outcome), "", _nothing)


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
        )  # fmt: skip
    if fate is Fate.BARRED:
        return replace(end, status="failed", error=BARRED)
    if fate is Fate.GONE and not end.reason:
        return replace(end, reason=JOB_GONE)
    return end


def _settlement(outcome: Outcome) -> Settlement:
    match outcome:
        case Completed(result):
            return Complete(result)
        case Failed(error=error, traceback=trace, final=True):
            return Fail(error, trace)
        case Failed(error=error, traceback=trace, retry_ms=delay):
            return Retry(delay, error, trace)
        case Interrupted():
            return GiveBack()
        case Skipped():
            return Complete()
