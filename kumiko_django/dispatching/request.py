"""Turning a call of ``dispatch`` into a job that is ready to be queued, or into a clear error."""

from __future__ import annotations

import datetime as dt
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.core.exceptions import SynchronousOnlyOperation
from django.utils import timezone

from kumiko_django.admission.rules import rules_for
from kumiko_django.broker.envelope import Envelope, Metadata, TriggerEvent
from kumiko_django.broker.keys import event_job_id
from kumiko_django.broker.options import MAX_DELAY_MS, JobOptions
from kumiko_django.broker.producer import NewJob
from kumiko_django.definitions.concurrency import quiet_ms
from kumiko_django.definitions.fan_out import wrapper_of
from kumiko_django.definitions.job import JobDefinition
from kumiko_django.definitions.options import Priority, check_priority
from kumiko_django.definitions.registry import registry
from kumiko_django.exceptions import PayloadError, UnknownJobError
from kumiko_django.observability.chosen import current_trace
from kumiko_django.tenancy.resolution import tenant_for_dispatch
from kumiko_django.types import ambient
from kumiko_django.types.arguments import AMBIENT, Delay, TenantArgument
from kumiko_django.types.correlation import clean_correlation_id
from kumiko_django.types.ids import SYSTEM, new_job_id
from kumiko_django.types.jsonable import JSON, to_jsonable


@dataclass(frozen=True, slots=True)
class Request:
    """What a caller says about a dispatch, apart from the payload.

    The last two are said by ``emit``: the event's name, and the event where it has an id.
    """

    tenant_id: TenantArgument = AMBIENT
    triggered_by: Any = None
    priority: Priority | None = None
    delay: Delay = None
    run_at: dt.datetime | None = None
    trigger_name: str | None = None
    trigger_event: TriggerEvent | None = None


def find_definition(job: Any) -> JobDefinition:
    """The definition behind a name, a job function or a definition.

    Raises:
        UnknownJobError: There is none (B038), or no worker would know it.
    """
    if not isinstance(job, JobDefinition):
        return registry.get(job) if isinstance(job, str) else registry.for_handler(job)
    if job.app_label is None or registry.get(job.qualified_name) is not job:
        raise UnknownJobError(
            f"The definition of {job.module}.{job.name} is not registered, so no worker knows it. "
            "Call registry.register() with it, in a jobs.py module or in AppConfig.ready()."
        )
    return job


def build(definition: JobDefinition, payload: Any, request: Request) -> NewJob:
    """The job for a payload.

    Raises:
        PayloadError: The payload cannot travel or does not fit the schema.
        TenantRequired, ScopeError: The tenant is missing or wrong.
        SettingsError: The job is for every tenant, and nothing says which there are.
        ValueError: User, priority, delay or time is wrong.
    """
    return _Builder(definition, request).job(payload)


def build_each(
    definition: JobDefinition, payloads: Iterable[Any], request: Request
) -> Iterator[NewJob]:
    """The jobs for some payloads, one after the other; errors as :func:`build`."""
    builder = _Builder(definition, request)
    for index, payload in enumerate(payloads):
        yield builder.job(payload, f"payloads[{index}]")


class _Builder:
    """What all jobs of one dispatch have in common."""

    def __init__(self, definition: JobDefinition, request: Request) -> None:
        where = definition.qualified_name
        priority = None if request.priority is None else check_priority(request.priority, where)
        self._definition = definition
        self._meta = _metadata(definition, request)
        self._queued = queued_as(definition, self._meta.tenant_id)
        self._now_ms = time.time_ns() // 1_000_000
        self._options = JobOptions.for_definition(
            self._queued, priority=priority, delay_ms=_delay_of(self._queued, request, self._now_ms)
        )
        self._job_id = _event_job_id(definition, self._meta)
        # The wrapper of a job for every tenant passes as it is; its children have the rules.
        self._rules = rules_for(self._queued, self._meta.tenant_id or SYSTEM)

    def job(self, payload: Any, called: str = "payload") -> NewJob:
        """The job for one payload, which messages call ``called``."""
        definition = self._definition
        try:
            return NewJob.of(
                Envelope(encode_payload(definition, payload), self._meta),
                lane=definition.lane,
                name=self._queued.qualified_name,
                job_id=self._job_id or new_job_id(),
                options=self._options,
                timestamp_ms=self._now_ms,
                rules=self._rules,
            )
        except PayloadError as error:
            # All but the one payload may be fine: say which, and of which job.
            place = f"{called}{error.path.removeprefix('payload')}"
            number = "" if called == "payload" else f"{called}: "
            told = f"{definition.qualified_name}: {number}{error}"
            raise type(error)(told, path=place) from error


def queued_as(definition: JobDefinition, tenant_id: str | None = None) -> JobDefinition:
    """What is put into the queue for a job: itself, or the wrapper that makes one for each tenant.

    Every path into a queue asks here for the name and the options of what it queues. A job of
    ``per_tenant`` that has a tenant runs for that one alone (P45).
    """
    if definition.per_tenant and tenant_id in (None, SYSTEM):
        return wrapper_of(definition)
    return definition


def encode_payload(definition: JobDefinition, payload: Any) -> dict[str, JSON]:
    """A payload as JSON values, checked by the job's schema where it has one (P33, P71).

    Raises:
        PayloadError: It cannot travel or does not fit; the message names the place.
    """
    value = {} if payload is None else payload
    if definition.payload_schema is not None:
        value = definition.payload_schema.dump(value)
    if not isinstance(value, Mapping):
        raise PayloadError(
            f"payload must be a mapping of names to values, not {type(value).__name__}."
        )
    encoded = to_jsonable(value)
    if not isinstance(encoded, dict):
        raise PayloadError("payload is no mapping.")
    return encoded


def _metadata(definition: JobDefinition, request: Request) -> Metadata:
    origin = ambient.write_origin.get()
    return Metadata(
        tenant_id=tenant_for_dispatch(definition, request.tenant_id),
        triggered_by_id=user_id_of(request.triggered_by, definition.qualified_name),
        trigger_name=request.trigger_name,
        trigger_event=request.trigger_event,
        trace=current_trace(),
        correlation_id=clean_correlation_id(ambient.correlation_id.get()),
        # Only an origin that bars personal data has to follow the work (B170).
        write_origin=origin if origin is not None and origin.is_gated else None,
    )


def _event_job_id(definition: JobDefinition, meta: Metadata) -> str | None:
    """The id that makes the repetition of an event harmless (P65); None where there is no event."""
    if meta.trigger_name is None or meta.trigger_event is None:
        return None
    return event_job_id(
        meta.trigger_name, meta.trigger_event.id, definition.qualified_name, meta.tenant_id or ""
    )


def user_id_of(triggered_by: Any, where: str) -> str | None:
    """The key of a user object, or the given key; without either, the ambient user.

    Raises:
        ValueError: It is neither a user nor a key, or is not saved; ``where`` begins the message.
        SynchronousOnlyOperation: It is ``request.user``, not loaded yet, in async code.
    """
    if triggered_by is None:
        return ambient.user_id.get()
    try:
        is_user = hasattr(triggered_by, "pk")
    except SynchronousOnlyOperation as error:
        # request.user is lazy, and would ask the database now.
        raise SynchronousOnlyOperation(
            f"{where}: request.user cannot be loaded in async code; give "
            "triggered_by=await request.auser()."
        ) from error
    if is_user:
        if triggered_by.pk is None and getattr(triggered_by, "is_authenticated", True):
            raise ValueError(
                f"{where}: triggered_by is a {type(triggered_by).__name__} that is not saved, so "
                "it has no key yet. Save it first."
            )
        triggered_by = triggered_by.pk  # None for an anonymous user
    elif isinstance(triggered_by, bool) or not isinstance(triggered_by, str | int | UUID):
        raise ValueError(
            f"{where}: triggered_by must be a user or the key of one, "
            f"not {type(triggered_by).__name__}."
        )
    return None if triggered_by in (None, "") else str(triggered_by)


def _delay_of(definition: JobDefinition, request: Request, now_ms: int) -> int:
    where = definition.qualified_name
    delay_ms = _delay_ms(request, where, now_ms)
    if definition.concurrency != "debounce":
        return delay_ms
    if request.delay is not None or request.run_at is not None:
        raise ValueError(
            f"{where}: debounce= says when the job is due; drop delay= or run_at= here."
        )
    return quiet_ms(definition)


def _delay_ms(request: Request, where: str, now_ms: int) -> int:
    if request.delay is not None and request.run_at is not None:
        raise ValueError(f"{where}: give delay= or run_at=, not both.")
    delay = 0
    if request.delay is not None:
        delay = round(_seconds(request.delay, where) * 1000)
    elif request.run_at is not None:
        if not isinstance(request.run_at, dt.datetime) or timezone.is_naive(request.run_at):
            raise ValueError(
                f"{where}: run_at must be an aware datetime, e.g. timezone.now() + timedelta(...), "
                f"not {request.run_at!r}."
            )
        # A moment that has passed means now.
        delay = max(0, math.floor(request.run_at.timestamp() * 1000) - now_ms)
    if delay > MAX_DELAY_MS:
        raise ValueError(f"{where}: a delay of more than ten years is not supported.")
    return delay


def _seconds(delay: object, where: str) -> float:
    seconds = delay.total_seconds() if isinstance(delay, dt.timedelta) else delay
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e12:
        raise ValueError(f"{where}: delay must be seconds or a timedelta from 0 on, not {delay!r}.")
    return float(seconds)
