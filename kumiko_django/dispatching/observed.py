"""What is measured of dispatches: a span around each, and how many came to what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from kumiko_django.broker.door import Decision
from kumiko_django.broker.producer import NewJob
from kumiko_django.definitions.job import JobDefinition
from kumiko_django.observability import names
from kumiko_django.observability.chosen import get_meter, get_tracer
from kumiko_django.observability.tracer import Attribute
from kumiko_django.types import ambient

_UNTRACED: Final = nullcontext()


def dispatching(definition: JobDefinition) -> AbstractContextManager[Any]:
    """The span of a dispatch; the runs of its jobs are below it."""
    if get_tracer() is None:
        return _UNTRACED
    return _span({"job.name": definition.qualified_name, "kumiko.job.run_in": definition.lane})


def emitting(event: str) -> AbstractContextManager[Any]:
    """The span of an event; the runs of the jobs that it starts are below it."""
    return _UNTRACED if get_tracer() is None else _span({"kumiko.event": event})


def _span(attributes: dict[str, Attribute]) -> AbstractContextManager[Any]:
    tracer = get_tracer()
    if tracer is None:
        return _UNTRACED
    scope, trace = ambient.scope.get(), ambient.trace.get()
    if scope is not None:
        attributes["kumiko.tenant_id"] = scope.tenant_id
    # Receivers of a run's signals, say, are in no span any more, and still belong to its trace.
    if trace is not None and trace.parent is not None and tracer.current() is None:
        return tracer.span(
            names.DISPATCH, kind="producer", attributes=attributes, parent=trace.parent
        )
    return tracer.span(names.DISPATCH, kind="producer", attributes=attributes)


def count(jobs: Sequence[NewJob], decisions: Sequence[Decision]) -> None:
    """Count what the door has decided about jobs."""
    meter = get_meter()
    if meter is None:
        return
    pairs = zip(jobs, decisions, strict=False)  # of some nothing is known: Redis went away
    for (name, status), amount in Counter((job.name, made.status) for job, made in pairs).items():
        meter.count(names.DISPATCHED.name, amount, job=name, status=status)


def count_failed(job_name: str, amount: int = 1) -> None:
    """Count jobs that could not be queued, of which nobody is told who would try again."""
    meter = get_meter()
    if meter is not None:
        meter.count(names.DISPATCHED.name, amount, job=job_name, status="failed")
