"""One run, step by step. Bookkeeping that fails never changes the outcome (P24-P26).

The queue is told first, with the run's record stored beside it in the same step; the history
follows (design 9). What the queue does not agree to has not happened.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

from kumiko_django import signals
from kumiko_django.broker.delivery import (
    Delivery,
    Verdict,
)
from kumiko_django.definitions.fan_out import Wrapper
from kumiko_django.exceptions import PayloadError, ScopeError, TenantRequired, UnknownJobError
from kumiko_django.history.record import UnreadableRecord
from kumiko_django.history.recorder import Recorder
from kumiko_django.run import per_tenant
from kumiko_django.run.execution import BrokenOff, Ending, Executor, Raised, Returned
from kumiko_django.run.failure import Refused, failed
from kumiko_django.run.outcome import Completed, Failed, Interrupted, Outcome, Skipped
from kumiko_django.run.reporting import Reporter
from kumiko_django.run.result import keepable
from kumiko_django.run.state import Run
from kumiko_django.run.threads import HandlerThreads
from kumiko_django.run.verdict import Verdicts, without_record
from kumiko_django.tenancy.resolution import tenant_for_run
from kumiko_django.types.ids import SYSTEM

logger = logging.getLogger("kumiko_django.run")


class Runner:
    """Runs deliveries of a process."""

    def __init__(
        self, recorder: Recorder, worker_id: str, written: Callable[[Delivery], None]
    ) -> None:
        """Create a runner on the running event loop.

        Args:
            recorder: Where the history goes.
            worker_id: Identifies this process in the history.
            written: Called on the loop when the record of a delivery's run is in the history.
        """
        self._recorder = recorder
        self._worker_id = worker_id
        self._threads = HandlerThreads()
        self._executor = Executor(self._threads)
        self._reporter = Reporter(self._threads)
        self._verdicts = Verdicts(recorder, self._reporter, written)

    def interrupt(self) -> None:
        """Break off what runs: the worker leaves."""
        self._executor.interrupt()

    def close(self) -> None:
        """End idle threads."""
        self._threads.close()

    def has_room(self) -> bool:
        """Whether the record of another run could be kept until the database takes it."""
        return self._recorder.has_room()

    async def run(self, delivery: Delivery) -> Verdict:
        """Run a delivery and say what the queue shall do with it. Does not raise."""
        run = Run(delivery, self._worker_id, self._recorder)
        try:
            self._pass_on_former(delivery)
            outcome = await self._run(run)
            return self._verdicts.of(run, outcome)
        except Exception as error:
            # A fault of ours. The job must not hang in the queue because of it.
            logger.exception("Job %s (%s) met a fault", delivery.job_id, delivery.job_name)
            return without_record(failed(error, delivery))

    async def _run(self, run: Run) -> Outcome:
        delivery = run.delivery
        try:
            self._look_up(run)
            self._read_metadata(run)
            self._resolve_tenant(run)
            if reason := await per_tenant.why_skipped(run, self._threads):
                return self._skip(run, Skipped(reason))
            self._load_payload(run)
        except Refused as refusal:
            return self._refuse(run, failed(refusal, delivery, retryable=False))
        except Exception as error:
            # A validator of the job's schema, say. It may pass, and must be on record either way.
            logger.exception("Job %s (%s) met a fault", delivery.job_id, delivery.job_name)
            return self._refuse(run, failed(error, delivery, run.backoff))
        self._record_start(run)
        await self._reporter.report(signals.job_started, run)
        return await self._execute(run)

    def _refuse(self, run: Run, outcome: Failed) -> Outcome:
        """End a run whose handler is not called, with a record like any other (B207)."""
        _log_failure(run, outcome)
        run.read_what_is_readable()
        run.finish(outcome)
        self._record_start(run)
        return outcome

    def _skip(self, run: Run, outcome: Skipped) -> Outcome:
        """End a run whose handler need not be called, with a record like any other (P47)."""
        delivery = run.delivery
        logger.info(
            "Job %s (%s) of %s skipped: %s",
            delivery.job_name, delivery.job_id, _tenant(run), outcome.reason,
            extra={"run_id": str(run.run_id), "tenant_id": run.tenant_id},
        )  # fmt: skip
        run.finish(outcome)
        self._record_start(run)
        return outcome

    def _pass_on_former(self, delivery: Delivery) -> None:
        """Have written what earlier runs of the job have left beside the queue."""
        for record in delivery.former:
            try:
                self._recorder.run_found(record)
            except UnreadableRecord as error:
                logger.warning("A former run of job %s: %s", delivery.job_id, error)

    def _look_up(self, run: Run) -> None:
        try:
            run.definition = per_tenant.find_definition(run.delivery.job_name)
        except UnknownJobError as error:
            raise Refused(str(error)) from error
        if run.delivery.queue_failure:
            # The queue has given the job up; the handler must not run (bullmq-python 1.9).
            raise Refused(f"The queue gave the job up: {run.delivery.queue_failure}.")

    def _read_metadata(self, run: Run) -> None:
        try:
            run.read_envelope()
        except (ValueError, PayloadError) as error:
            # B133: an origin that cannot be read might bar personal data; guess nothing.
            raise Refused(f"The job's metadata cannot be trusted: {error}.") from error

    def _resolve_tenant(self, run: Run) -> None:
        if isinstance(run.definition, Wrapper):
            return  # it is SYSTEM's, whatever tenant it carries (B064)
        try:
            run.tenant_id = tenant_for_run(run.known_definition, run.meta.tenant_id)
        except (TenantRequired, ScopeError) as error:
            raise Refused(str(error)) from error

    def _load_payload(self, run: Run) -> None:
        if isinstance(run.definition, Wrapper):
            run.argument = per_tenant.Work(run.definition.job, run, self._recorder)
            return
        # A copy to the bottom: the handler may change its payload while the recorder reads ours.
        run.argument = json.loads(json.dumps(run.payload))
        schema = run.known_definition.payload_schema
        if schema is None:
            return
        try:
            run.argument = schema.load(run.argument)
        except PayloadError as error:
            raise Refused(str(error)) from error

    def _record_start(self, run: Run) -> None:
        self._recorder.run_started(run.begin())

    async def _execute(self, run: Run) -> Outcome:
        try:
            ending = await self._executor.execute(
                run.known_definition, run.argument, run.context(), run.surroundings()
            )
            outcome = self._classify(run, ending)
        except Exception as error:
            # A fault of ours. The run has begun on record, so it must end there too.
            logger.exception("Run %s of %s met a fault", run.run_id, run.delivery.job_name)
            outcome = failed(error, run.delivery, run.backoff)
        run.finish(outcome)
        return outcome

    def _classify(self, run: Run, ending: Ending) -> Outcome:
        match ending:
            case Returned(value):
                _log_completion(run)
                return Completed(*keepable(value))
            case Raised(error):
                outcome = failed(error, run.delivery, run.backoff)
                _log_failure(run, outcome)
                return outcome
            case BrokenOff():
                return Interrupted()


def _log_failure(run: Run, outcome: Failed) -> None:
    """To the process log, with what is needed to find the run (B130)."""
    delivery = run.delivery
    logger.log(
        logging.ERROR if outcome.final else logging.WARNING,
        "Job %s (%s) of %s failed on attempt %d of %d%s: %s",
        delivery.job_name,
        delivery.job_id,
        _tenant(run),
        delivery.attempt,
        delivery.max_attempts,
        ", finally" if outcome.final else f"; the next in {outcome.retry_ms / 1000:g} s",
        outcome.error,
        extra={"run_id": str(run.run_id), "tenant_id": run.tenant_id, "final": outcome.final},
    )


def _log_completion(run: Run) -> None:
    logger.info(
        "Job %s (%s) of %s completed",
        run.delivery.job_name,
        run.delivery.job_id,
        _tenant(run),
        extra={"run_id": str(run.run_id), "tenant_id": run.tenant_id},
    )


def _tenant(run: Run) -> str:
    return "no tenant" if run.tenant_id == SYSTEM else f"tenant {run.tenant_id}"
