"""The facts of one run while it goes through its steps, and their forms for history and signals."""

from __future__ import annotations

import contextlib
import datetime as dt
import time
from contextvars import Context, ContextVar
from functools import cached_property
from typing import Any
from uuid import uuid4

from kumiko_django.broker.carried import Carried, carried
from kumiko_django.broker.delivery import Delivery
from kumiko_django.broker.envelope import Metadata, read_metadata, read_payload
from kumiko_django.definitions.job import JobDefinition
from kumiko_django.definitions.options import Backoff
from kumiko_django.definitions.registry import registry
from kumiko_django.exceptions import ScopeError
from kumiko_django.facets.provided import Facets
from kumiko_django.handlers.identity import current_run
from kumiko_django.handlers.in_run import RunIdentity
from kumiko_django.history.events import LogLine, RunEnded, RunStarted
from kumiko_django.history.recorder import Recorder
from kumiko_django.run.context import JobContext, Notes, TriggeredBy
from kumiko_django.run.ending import how_it_ended
from kumiko_django.run.logbook import Logbook, RunLog
from kumiko_django.run.outcome import (
    Deferred,
    Outcome,
    error_of,
    is_final,
)
from kumiko_django.run.surroundings import ambient_values
from kumiko_django.run.visible import message_key, visible_at_end, visible_of
from kumiko_django.tenancy.escape import RunHatches
from kumiko_django.tenancy.scope import clean_tenant_id
from kumiko_django.types import ambient
from kumiko_django.types.ambient import TraceContext
from kumiko_django.types.ids import SYSTEM, uuid7
from kumiko_django.types.jsonable import JSON
from kumiko_django.types.moments import moment
from kumiko_django.types.runinfo import RunInfo
from kumiko_django.types.visible import Visible


class Run:
    """One execution of a job. Filled by the runner's steps, in their order."""

    def __init__(self, delivery: Delivery, worker_id: str, recorder: Recorder) -> None:
        self.delivery = delivery
        self.before = carried(delivery)
        self.run_id = uuid7() if self.before is None else self.before.run_id
        self.definition: JobDefinition | None = None
        self.meta = Metadata()
        self.payload: dict[str, JSON] = {}
        self.argument: Any = None
        self.tenant_id = SYSTEM
        self.request_id = str(uuid4())
        self.trace: TraceContext | None = None
        self._identity = RunIdentity(self)
        self.around: Context | None = None
        """The context in which the handler is called, where the run's span has made one."""
        self.started_at = dt.datetime.now(dt.UTC)
        self._worker_id = worker_id
        self.start_event: RunStarted | None = None
        self.visible: Visible | None = None
        self._began = time.monotonic()
        self._outcome: Outcome | None = None
        self._duration: dt.timedelta | None = None
        self._book = Logbook(
            lambda line: recorder.log_lines(self.run_id, [line]),
            0 if self.before is None else self.before.lines,
        )
        self._notes = Notes(lambda value: recorder.run_progress(self.run_id, value))
        delivery.cancellation.on_cancel(self._note_cancelled)

    @property
    def known_definition(self) -> JobDefinition:
        """The definition, once it has been looked up."""
        if self.definition is None:
            raise LookupError(f"{self.delivery.job_name} has not been looked up")
        return self.definition

    @property
    def backoff(self) -> Backoff | None:
        """The definition's pause between attempts, for jobs that store none."""
        return None if self.definition is None else self.definition.effective_backoff

    @property
    def correlation_id(self) -> str:
        """The inherited one, else this run begins a chain of its own (B136)."""
        return self.meta.correlation_id or self.request_id

    @property
    def log_lines(self) -> tuple[LogLine, ...]:
        """What has been logged."""
        return self._book.lines

    @property
    def start(self) -> int:
        """The run's start number; a deferred run keeps it (design 6)."""
        return self.delivery.start if self.before is None else self.before.start

    @property
    def deferrals(self) -> int:
        """How often this run has been deferred before."""
        return 0 if self.before is None else self.before.defers

    @property
    def has_made_deferral(self) -> bool:
        """Whether the handler has called ``ctx.defer()``."""
        return bool(self._notes.deferrals)

    def after_deferral(self) -> Carried:
        """The run as it stands once it has been deferred."""
        return Carried(self.run_id, self.start, self.deferrals + 1, self._book.count)

    @cached_property
    def hatches(self) -> RunHatches:
        """What it may do besides what its scope allows."""
        user = self.meta.triggered_by_id
        return RunHatches(self.name, self.definition, self.tenant_id, self.run_id, user)

    def warn(self, message: str) -> None:
        """Write a line of ours into the run's log."""
        self._book.write("warn", message, {})

    def note(self, message: str) -> None:
        """Write one that warns of nothing."""
        self._book.write("info", message, {})

    def _note_cancelled(self, reason: str) -> None:
        self.warn(f"cancelled: {reason}")

    def read_envelope(self) -> None:
        """Take payload and metadata from the job's data.

        Raises:
            PayloadError: The data is no object.
            MalformedOrigin: The write origin cannot be read.
        """
        self.payload = read_payload(self.delivery.data)
        self.meta = read_metadata(self.delivery.data)
        self.trace = self.meta.trace

    def read_what_is_readable(self) -> None:
        """The same for a run that is refused: its record says what can be said."""
        if isinstance(self.delivery.data, dict):
            self.payload = read_payload(self.delivery.data)
            readable = {k: v for k, v in self.delivery.data.items() if k != "_writeOrigin"}
            self.meta = read_metadata(readable)
            self.trace = self.meta.trace
        with contextlib.suppress(ScopeError):
            self.tenant_id = clean_tenant_id(self.meta.tenant_id or SYSTEM)

    def show(self) -> None:
        """Note what its tenant may see.

        Raises:
            Refused: The payload has no subject of the kind that the job declares (B182).
        """
        if self.definition is not None:
            self.visible = visible_of(
                self.definition, self.payload, self.tenant_id, self.started_at
            )

    def surroundings(self, tenant_id: str | None = None) -> Context:
        """A new context with what is ambient while this run lasts (B134).

        Args:
            tenant_id: Whose scope it has; by default that of the run's tenant.
        """
        return ambient.context_with(self.ambient_values(tenant_id))

    def ambient_values(self, tenant_id: str | None = None) -> dict[ContextVar[Any], Any]:
        """The values themselves; arguments as :meth:`surroundings`."""
        return ambient_values(self, tenant_id) | {current_run: self._identity}

    def context(self) -> JobContext:
        """What the handler is given."""
        user = self.meta.triggered_by_id
        return JobContext(
            job_name=self.name,
            job_id=self.delivery.job_id,
            run_id=self.run_id,
            attempt=self.delivery.attempt,
            final_attempt=self.delivery.attempt >= self.delivery.max_attempts,
            tenant_id=self.tenant_id,
            triggered_by=None if user is None else TriggeredBy(user, self.tenant_id),
            correlation_id=self.correlation_id,
            request_id=self.request_id,
            log=RunLog(self._book),
            registry=registry,
            trigger_name=self.meta.trigger_name,
            trigger_event=self.meta.trigger_event,
            _notes=self._notes,
            _cancellation=self.delivery.cancellation,
            _facets=Facets(self.tenant_id, self.name, user, self.correlation_id),
            _identity=self._identity,
            _hatches=self.hatches,
            _can_be_deferred=self.delivery.queued,
            fencing_token=self.delivery.fencing_token,
        )

    def finish(self, outcome: Outcome) -> None:
        """Stop the clock, close what the run has opened, and end the log (B127, B129)."""
        self.hatches.close()
        self._outcome = outcome
        self._duration = dt.timedelta(seconds=time.monotonic() - self._began)
        self._book.close(error_of(outcome))

    def info(self) -> RunInfo:
        """The run as signals see it."""
        outcome = self._outcome
        final = is_final(outcome) if outcome else self._is_last_attempt
        return RunInfo(
            job_name=self.name,
            job_id=self.delivery.job_id,
            run_id=self.run_id,
            tenant_id=self.tenant_id,
            attempt=self.delivery.attempt,
            final=final,
            duration=self._duration,
            error=error_of(outcome),
            message_key=message_key(self.visible, outcome, final=final),
        )

    def begin(self) -> RunStarted:
        """The run's start as the history keeps it."""
        delivery = self.delivery
        # A gate was never queued: its own start tells its runs apart, to the microsecond (P62).
        created_at = moment(delivery.created_at_ms) if delivery.queued else self.started_at
        due_at = moment(delivery.created_at_ms + delivery.delay_ms)
        # Only a first start has waited since the dispatch; a retry has waited for its backoff. A
        # job whose name was not known, or that had no slot, has been started before.
        waits = delivery.queued and delivery.start == 1
        waited = self.started_at - due_at if waits else None
        self.start_event = RunStarted(
            run_id=self.run_id,
            job_name=self.name,
            lane=delivery.lane,
            queue_job_id=delivery.job_id,
            queue_created_at=created_at,
            attempt=delivery.attempt,
            max_attempts=delivery.max_attempts,
            start=self.start,
            tenant_id=self.tenant_id,
            payload=dict(self.payload),
            started_at=self.started_at,
            enqueued_at=created_at,
            wait_ms=None if waited is None else max(0, round(waited.total_seconds() * 1000)),
            worker=self._worker_id,
            losses=delivery.losses,
            triggered_by_id=self.meta.triggered_by_id,
            trigger=self.meta.trigger_name or "",
            correlation_id=self.correlation_id,
            trace_id="" if self.trace is None else self.trace.trace_id,
            parent=self.meta.parent_run,
            deferrals=self.deferrals,
            visible=self.visible,
        )
        return self.start_event

    def ended_event(self, outcome: Outcome) -> RunEnded:
        """The run's end as the history keeps it."""
        duration = self._duration or dt.timedelta()
        common: dict[str, Any] = {
            "run_id": self.run_id,
            "final": is_final(outcome),
            "finished_at": dt.datetime.now(dt.UTC),
            "duration_ms": round(duration.total_seconds() * 1000),
            "progress": self._notes.progress,
            "object_ref": self._notes.object_ref,
            "deferrals": self.deferrals + isinstance(outcome, Deferred),
            "visible": visible_at_end(self.visible, outcome),
        }
        return RunEnded(**common, **how_it_ended(outcome))

    @property
    def name(self) -> str:
        """The job's name; one queued under an old name is known by its new one from here on."""
        if self.definition is None:
            return self.delivery.job_name
        return self.definition.qualified_name

    @property
    def _is_last_attempt(self) -> bool:
        return self.delivery.attempt >= self.delivery.max_attempts
