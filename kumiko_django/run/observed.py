"""What is measured of runs: the span of each, and the numbers of all (B137-B139, B208-B211)."""

from __future__ import annotations

from contextvars import Context
from types import TracebackType
from typing import Protocol

from kumiko_django.history.events import RunEnded
from kumiko_django.observability import names
from kumiko_django.observability.guarded import GuardedMeter, GuardedSpan, GuardedTracer
from kumiko_django.observability.tracer import Attribute
from kumiko_django.run.outcome import Failed, Outcome, Quarantined
from kumiko_django.run.state import Run
from kumiko_django.types import ambient
from kumiko_django.types.ambient import TraceContext

_UNRUN = ("skipped", "quarantined", "cancelled")


class RunSpan(Protocol):
    """A block around a run."""

    def __enter__(self) -> RunSpan: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def ended(self, outcome: Outcome) -> None:
        """Say what the run came to."""
        ...


def span_of(tracer: GuardedTracer | None, run: Run) -> RunSpan:
    """The span of a run."""
    return _UNTRACED if tracer is None else _ExecuteSpan(tracer, run)


class _Untraced:
    """In place of a span where nothing traces."""

    def __enter__(self) -> _Untraced:
        return self

    def __exit__(self, *details: object) -> None:
        pass

    def ended(self, outcome: Outcome) -> None:
        pass


_UNTRACED = _Untraced()


class _ExecuteSpan:
    """The span ``job.execute``.

    It begins when the run's start is about to be recorded, so that the record has its trace. The
    handler is called in the context in which it has begun, and so sees it as the current one.
    """

    def __init__(self, tracer: GuardedTracer, run: Run) -> None:
        self._run = run
        stored = None if run.meta.trace is None else run.meta.trace.parent
        # Ten thousand children of one fan-out would make one trace that nobody can look at (P91).
        is_linked = run.meta.parent_run is not None
        self._span: GuardedSpan = tracer.span(
            names.EXECUTE,
            kind="consumer",
            attributes=_attributes(run),
            parent=None if is_linked else stored,
            links=(stored,) if is_linked and stored is not None else (),
        )
        self._context: Context = run.surroundings()

    def __enter__(self) -> _ExecuteSpan:
        self._context.run(self._span.__enter__)
        parent = self._span.context
        if parent is not None:
            self._run.trace = TraceContext.at(parent)
            self._context.run(ambient.trace.set, self._run.trace)
        self._run.around = self._context
        return self

    def ended(self, outcome: Outcome) -> None:
        if isinstance(outcome, Failed):
            self._span.fail(outcome.error, outcome.exception, outcome.traceback)
        elif isinstance(outcome, Quarantined):
            self._span.fail(outcome.error)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._context.run(self._span.__exit__, kind, error, traceback)
        except RuntimeError:
            # The thread of a handler that does not end is still in it.
            self._span.__exit__(kind, error, traceback)


def _attributes(run: Run) -> dict[str, Attribute]:
    """Exactly those of the original (B137)."""
    delivery = run.delivery
    found: dict[str, Attribute] = {
        "job.name": run.name,
        "job.id": delivery.job_id,
        "job.attempt": delivery.attempt,
        "kumiko.tenant_id": run.tenant_id,
        "kumiko.job.run_in": delivery.lane if run.definition is None else run.definition.lane,
    }
    if delivery.queued:  # a boot gate is consumed from no lane
        found["kumiko.job.consumer_lane"] = delivery.lane
    return found


class RunMetrics:
    """Counts runs and takes their times."""

    def __init__(self, meter: GuardedMeter) -> None:
        self._meter = meter

    def ended(self, run: Run, end: RunEnded) -> None:
        """A run has ended, and the queue knows."""
        job = names.NO_JOB if run.definition is None else run.name
        lane = run.delivery.lane
        outcome = "retry" if end.status == "failed" and not end.final else end.status
        self._meter.count(names.RUNS.name, job=job, lane=lane, outcome=outcome)
        if end.status in _UNRUN:
            return
        self._meter.observe(names.DURATION.name, end.duration_ms / 1000, job=job, lane=lane)
        start = run.start_event
        if start is not None and start.wait_ms is not None:
            self._meter.observe(names.WAIT.name, start.wait_ms / 1000, job=job, lane=lane)
        if end.status == "completed":
            self._meter.succeeded(job, end.finished_at.timestamp())
