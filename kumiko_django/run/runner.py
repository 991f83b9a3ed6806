"""One run, step by step. Bookkeeping that fails never changes the outcome (P24-P26)."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from django.dispatch import Signal

from kumiko_django import signals
from kumiko_django.broker.delivery import Complete, Delivery, Fail, GiveBack, Retry, Settlement
from kumiko_django.definitions.registry import registry
from kumiko_django.exceptions import PayloadError, ScopeError, TenantRequired, UnknownJobError
from kumiko_django.history.recorder import Recorder
from kumiko_django.run.execution import BrokenOff, Ending, Executor, Raised, Returned
from kumiko_django.run.failure import Refused, failed
from kumiko_django.run.outcome import Completed, Failed, Interrupted, Outcome
from kumiko_django.run.result import keepable
from kumiko_django.run.state import Run
from kumiko_django.run.threads import HandlerThreads
from kumiko_django.tenancy.resolution import tenant_for_run
from kumiko_django.types import ambient
from kumiko_django.types.ids import SYSTEM

logger = logging.getLogger("kumiko_django.run")


class Runner:
    """Runs deliveries of a process."""

    def __init__(self, recorder: Recorder, worker_id: str) -> None:
        """Create a runner on the running event loop.

        Args:
            recorder: Where the history goes.
            worker_id: Identifies this process in the history.
        """
        self._recorder = recorder
        self._worker_id = worker_id
        self._threads = HandlerThreads()
        self._executor = Executor(self._threads)

    def interrupt(self) -> None:
        """Break off what runs: the worker leaves."""
        self._executor.interrupt()

    def close(self) -> None:
        """End idle threads."""
        self._threads.close()

    async def run(self, delivery: Delivery) -> Settlement:
        """Run a delivery and say what the queue shall do with it. Does not raise."""
        try:
            return await self._run(delivery)
        except Exception as error:
            # A fault of ours. The job must not hang in the queue because of it.
            logger.exception("Job %s (%s) met a fault", delivery.job_id, delivery.job_name)
            return _settlement(failed(error, delivery))

    async def _run(self, delivery: Delivery) -> Settlement:
        run = Run(delivery, self._worker_id, self._recorder)
        try:
            self._look_up(run)
            self._read_metadata(run)
            self._resolve_tenant(run)
            self._load_payload(run)
        except Refused as refusal:
            return await self._refuse(run, failed(refusal, delivery, retryable=False))
        except Exception as error:
            # A validator of the job's schema, say. It may pass, and must be on record either way.
            logger.exception("Job %s (%s) met a fault", delivery.job_id, delivery.job_name)
            return await self._refuse(run, failed(error, delivery, run.backoff))
        with ambient.entered(run.ambient_values()):
            self._record_start(run)
            await self._report(signals.job_started, run)
            outcome = await self._execute(run)
            await self._record_end(run, outcome)
            await self._report_end(run, outcome)
        return _settlement(outcome)

    async def _refuse(self, run: Run, outcome: Failed) -> Settlement:
        """End a run whose handler is not called, with a record like any other (B207)."""
        _log_failure(run, outcome)
        run.read_what_is_readable()
        run.finish(outcome)
        with ambient.entered(run.ambient_values()):
            self._record_start(run)
            await self._record_end(run, outcome)
            await self._report_end(run, outcome)
        return _settlement(outcome)

    def _look_up(self, run: Run) -> None:
        try:
            run.definition = registry.get(run.delivery.job_name)
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
        try:
            run.tenant_id = tenant_for_run(run.known_definition, run.meta.tenant_id)
        except (TenantRequired, ScopeError) as error:
            raise Refused(str(error)) from error

    def _load_payload(self, run: Run) -> None:
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
        self._recorder.run_started(run.started_event())

    async def _execute(self, run: Run) -> Outcome:
        try:
            ending = await self._executor.execute(run.known_definition, run.argument, run.context())
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

    async def _record_end(self, run: Run, outcome: Outcome) -> None:
        """The queue is told only after this: what it calls done is on record."""
        try:
            stands = await asyncio.wrap_future(self._recorder.run_ended(run.ended_event(outcome)))
        except Exception:
            logger.exception(
                "Run %s of %s ended (%s) without a record",
                run.run_id, run.delivery.job_name, type(outcome).__name__.lower(),
            )  # fmt: skip
            return
        if not stands:
            logger.warning(
                "Run %s of %s had been closed by another worker; its end here is not recorded",
                run.run_id, run.delivery.job_name,
            )  # fmt: skip

    async def _report_end(self, run: Run, outcome: Outcome) -> None:
        if isinstance(outcome, Completed):
            await self._report(signals.job_completed, run, outcome=outcome, logs=run.log_lines)
        elif isinstance(outcome, Failed):
            await self._report(signals.job_failed, run, outcome=outcome, logs=run.log_lines)

    async def _report(self, signal: Signal, run: Run, **arguments: Any) -> None:
        """Send a signal in a thread, robustly: receivers use the ORM, and change nothing here."""
        sender = run.definition
        if not signal.has_listeners(sender):
            return
        info = run.info()

        def send() -> BaseException | None:
            try:
                signal.send_robust(sender=sender, run=info, **arguments)
            except BaseException as error:  # noqa: BLE001
                # send_robust passes SystemExit and its like on; on the loop they would end us.
                return error
            return None

        error = await self._threads.run(send)
        if error is not None:
            logger.error("A receiver of a signal about run %s broke off: %r", run.run_id, error)


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
