"""One run, step by step. Bookkeeping that fails never changes the outcome (P24-P26).

The queue is told first, with the run's record stored beside it in the same step; the history
follows (design 9). What the queue does not agree to has not happened.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
from collections.abc import Callable

from kumiko_django import signals
from kumiko_django.broker.carried import DEFER_COUNT, read_count
from kumiko_django.broker.delivery import Delivery, Verdict
from kumiko_django.broker.rules import Rules
from kumiko_django.conf import get_settings
from kumiko_django.definitions.fan_out import Wrapper
from kumiko_django.exceptions import PayloadError, ScopeError, TenantRequired, UnknownJobError
from kumiko_django.history.record import UnreadableRecord
from kumiko_django.history.recorder import Recorder
from kumiko_django.observability.chosen import get_meter, get_tracer
from kumiko_django.run import per_tenant
from kumiko_django.run.admission import rules_of, skipped_start
from kumiko_django.run.deferral import Deferral, over_budget
from kumiko_django.run.execution import (
    DEFAULT_GRACE_SECONDS,
    BrokenOff,
    Ending,
    Executor,
    Overran,
    Raised,
    Returned,
)
from kumiko_django.run.failure import Refused, failed
from kumiko_django.run.observed import RunMetrics, span_of
from kumiko_django.run.outcome import (
    Completed,
    Deferred,
    Failed,
    Interrupted,
    Outcome,
    Quarantined,
    Skipped,
)
from kumiko_django.run.quarantine import quarantine
from kumiko_django.run.reporting import Reporter
from kumiko_django.run.result import keepable
from kumiko_django.run.state import Run
from kumiko_django.run.telling import (
    log_completion,
    log_deferral,
    log_failure,
    log_lost_deferral,
    log_refusal,
    log_skip,
)
from kumiko_django.run.threads import HandlerThreads
from kumiko_django.run.timeouts import timed_out
from kumiko_django.run.unknown import UnknownJobs
from kumiko_django.run.verdict import Verdicts, plain_settlement, without_record
from kumiko_django.tenancy.resolution import tenant_for_run
from kumiko_django.types.jsonable import JSON

logger = logging.getLogger("kumiko_django.run")


class Runner:
    """Runs deliveries of a process."""

    def __init__(
        self,
        recorder: Recorder,
        worker_id: str,
        written: Callable[[Delivery], None],
        *,
        grace_seconds: float = DEFAULT_GRACE_SECONDS,
        on_stuck: Callable[[], None] = lambda: None,
    ) -> None:
        """Create a runner on the running event loop.

        Args:
            recorder: Where the history goes.
            worker_id: Identifies this process in the history.
            written: Called on the loop when the record of a delivery's run is in the history.
            grace_seconds: How long a handler may take to end once its timeout is over.
            on_stuck: Called when one takes longer: the process has to end.

        Raises:
            SettingsError: ``METER`` or ``TRACER`` cannot be had.
        """
        self._recorder = recorder
        self._worker_id = worker_id
        self._threads = HandlerThreads()
        self._executor = Executor(self._threads, grace_seconds, on_stuck)
        self._reporter = Reporter(self._threads)
        self._tracer, meter = get_tracer(), get_meter()
        self._unknown = UnknownJobs(meter)
        metrics = None if meter is None else RunMetrics(meter)
        self._verdicts = Verdicts(recorder, self._reporter, written, metrics)

    def interrupt(self) -> None:
        """Break off what runs: the worker leaves."""
        self._executor.interrupt()

    def close(self) -> None:
        """End idle threads."""
        self._threads.close()

    def has_room(self) -> bool:
        """Whether the record of another run could be kept until the database takes it."""
        return self._recorder.has_room()

    def rules(self, delivery: Delivery) -> Rules | None:
        """What the door has to say about a delivery. Does not raise."""
        return rules_of(delivery)

    async def skip(self, delivery: Delivery, reason: str) -> Verdict:
        """End a delivery that the door does not let in, on record since nobody else sees it."""
        run, outcome = Run(delivery, self._worker_id, self._recorder), Skipped(reason)
        try:
            self._look_up(run)
            run.read_what_is_readable()
            run.finish(outcome)
            self._recorder.run_started(skipped_start(run))
            return self._verdicts.of(run, outcome)
        except Exception:
            logger.exception("Job %s (%s) met a fault", delivery.job_id, delivery.job_name)
            return without_record(plain_settlement(outcome))

    async def run(self, delivery: Delivery) -> Verdict:
        """Run a delivery and say what the queue shall do with it. Does not raise."""
        run = Run(delivery, self._worker_id, self._recorder)
        try:
            self._pass_on_former(delivery)
            postponement = self._unknown.put_back(delivery)
            if postponement is not None:
                return without_record(postponement)
            outcome = await self._run(run)
            return self._verdicts.of(run, outcome)
        except Exception as error:
            # A fault of ours. The job must not hang in the queue because of it.
            logger.exception("Job %s (%s) met a fault", delivery.job_id, delivery.job_name)
            return without_record(plain_settlement(failed(error, delivery)))

    async def _run(self, run: Run) -> Outcome:
        delivery = run.delivery
        try:
            quarantined = self._look_up(run)
            if quarantined is not None:
                return self._refuse(run, quarantined)
            self._read_metadata(run)
            self._resolve_tenant(run)
            if reason := await per_tenant.why_skipped(run, self._threads):
                return self._skip(run, Skipped(reason))
            self._load_payload(run)
            run.show()
        except Refused as refusal:
            return self._refuse(run, failed(refusal, delivery, retryable=False))
        except Exception as error:
            # A validator of the job's schema, say. It may pass, and must be on record either way.
            logger.exception("Job %s (%s) met a fault", delivery.job_id, delivery.job_name)
            return self._refuse(run, failed(error, delivery, run.backoff))
        with span_of(self._tracer, run) as span:
            self._record_start(run)
            await self._reporter.report(signals.job_started, run)
            outcome = await self._execute(run)
            span.ended(outcome)
        return outcome

    def _refuse(self, run: Run, outcome: Failed | Quarantined) -> Outcome:
        """End a run whose handler is not called, with a record like any other (B207)."""
        log_refusal(run, outcome)
        run.read_what_is_readable()
        with contextlib.suppress(Refused):
            run.show()
        run.finish(outcome)
        with span_of(self._tracer, run) as span:
            self._record_start(run)
            span.ended(outcome)
        return outcome

    def _skip(self, run: Run, outcome: Skipped) -> Outcome:
        """End a run whose handler need not be called, with a record like any other (P47)."""
        log_skip(run, outcome)
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

    def _look_up(self, run: Run) -> Quarantined | None:
        unknown: UnknownJobError | None = None
        try:
            run.definition = per_tenant.find_definition(run.delivery.job_name)
        except UnknownJobError as error:
            unknown = error
        quarantined = quarantine(run.delivery, get_settings().stall_budget)
        if quarantined is not None:
            return quarantined
        if unknown is not None:
            raise Refused(str(unknown)) from unknown
        if run.delivery.queue_failure:
            # The queue has given the job up; the handler must not run (bullmq-python 1.9).
            raise Refused(f"The queue gave the job up: {run.delivery.queue_failure}.")
        return None

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
        schema = run.known_definition.payload_schema
        if schema is None:
            run.argument = _copy(run.payload)
            return
        try:
            run.argument = schema.load(run.payload)  # made anew, by way of its JSON
        except PayloadError as error:
            raise Refused(str(error)) from error

    def _record_start(self, run: Run) -> None:
        self._recorder.run_started(run.begin())

    async def _execute(self, run: Run) -> Outcome:
        try:
            ending = await self._executor.execute(
                run.known_definition, run.argument, run.context(),
                run.surroundings() if run.around is None else run.around,
                run.delivery.cancellation,
            )  # fmt: skip
            outcome = self._classify(run, ending)
        except Exception as error:
            # A fault of ours. The run has begun on record, so it must end there too.
            logger.exception("Run %s of %s met a fault", run.run_id, run.delivery.job_name)
            outcome = failed(error, run.delivery, run.backoff)
        run.finish(outcome)
        return outcome

    def _classify(self, run: Run, ending: Ending) -> Outcome:
        match ending:
            case Returned(Deferral() as deferral) | Raised(Deferral() as deferral):
                return self._defer(run, deferral)
            case Returned(value):
                if run.has_made_deferral:
                    log_lost_deferral(run)
                log_completion(run)
                return Completed(*keepable(value))
            case Raised(error):
                return self._fail(run, error)
            case Overran(seconds, raised):
                return self._fail(run, timed_out(seconds, raised))
            case BrokenOff():
                return Interrupted()

    def _fail(self, run: Run, error: BaseException) -> Failed:
        outcome = failed(error, run.delivery, run.backoff)
        log_failure(run, outcome)
        return outcome

    def _defer(self, run: Run, deferral: Deferral) -> Outcome:
        before = read_count(run.delivery.data, DEFER_COUNT)
        refused = over_budget(before, run.known_definition.max_defers)
        if refused is not None:
            return self._fail(run, refused)
        delay = deferral.delay_ms
        resume_at = dt.datetime.now(dt.UTC) + dt.timedelta(milliseconds=delay)
        log_deferral(run, delay, before + 1)
        return Deferred(delay, resume_at, before + 1)


def _copy(payload: dict[str, JSON]) -> dict[str, JSON]:
    """A copy to the bottom: the handler may change its payload while the recorder reads ours."""
    for value in payload.values():
        if isinstance(value, (dict, list)):  # faster than with |
            copied: dict[str, JSON] = json.loads(json.dumps(payload))
            return copied
    return dict(payload)
