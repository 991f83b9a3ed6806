"""Turning a call of ``dispatch`` into a job that is ready to be queued, or into a clear error."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from django.utils import timezone

from kumiko_django.broker.envelope import Envelope, Metadata, clean_correlation_id
from kumiko_django.broker.options import MAX_DELAY_MS, JobOptions
from kumiko_django.broker.producer import NewJob
from kumiko_django.definitions.job import JobDefinition
from kumiko_django.definitions.options import Priority, check_priority
from kumiko_django.definitions.registry import registry
from kumiko_django.exceptions import PayloadError
from kumiko_django.tenancy.resolution import AMBIENT, TenantArgument, tenant_for_dispatch
from kumiko_django.types import ambient
from kumiko_django.types.ids import new_job_id
from kumiko_django.types.jsonable import JSON, to_jsonable

Delay: TypeAlias = "dt.timedelta | float | int | None"


@dataclass(frozen=True, slots=True)
class Request:
    """What a caller says about a dispatch, apart from the payload."""

    tenant_id: TenantArgument = AMBIENT
    triggered_by: Any = None
    priority: Priority | None = None
    delay: Delay = None
    run_at: dt.datetime | None = None


def find_definition(job: Any) -> JobDefinition:
    """The definition behind a name, a job function or a definition.

    Raises:
        UnknownJobError: There is none (B038).
    """
    if isinstance(job, JobDefinition):
        registry.freeze()
        return job
    if isinstance(job, str):
        return registry.get(job)
    return registry.for_handler(job)


def build(definition: JobDefinition, payloads: list[Any], request: Request) -> list[NewJob]:
    """The jobs for some payloads. All are checked before any is built, so nothing is half-done.

    Raises:
        PayloadError: A payload cannot travel or does not fit the schema.
        TenantRequired, ScopeError: The tenant is missing or wrong.
        ValueError: Priority, delay or time is wrong.
    """
    where = definition.qualified_name
    priority = None if request.priority is None else check_priority(request.priority, where)
    now_ms = time.time_ns() // 1_000_000
    options = JobOptions.for_definition(
        definition, priority=priority, delay_ms=_delay_ms(request, where, now_ms)
    )
    meta = _metadata(definition, request)
    return [
        NewJob.of(
            Envelope(encode_payload(definition, payload), meta),
            lane=definition.lane,
            name=where,
            job_id=new_job_id(),
            options=options,
            timestamp_ms=now_ms,
        )
        for payload in payloads
    ]


def encode_payload(definition: JobDefinition, payload: Any) -> dict[str, JSON]:
    """A payload as JSON values, checked by the job's schema where it has one (P33, P71).

    Raises:
        PayloadError: It cannot travel or does not fit; the message names the job and the place.
    """
    try:
        return _encode(definition, {} if payload is None else payload)
    except PayloadError as error:
        raise PayloadError(f"{definition.qualified_name}: {error}", path=error.path) from error


def _encode(definition: JobDefinition, value: Any) -> dict[str, JSON]:
    if definition.payload_schema is not None:
        value = definition.payload_schema.dump(value)
    encoded = to_jsonable(value) if isinstance(value, Mapping) else None
    if not isinstance(encoded, dict):
        raise PayloadError(
            f"payload must be a mapping of names to values, not {type(value).__name__}."
        )
    return encoded


def _metadata(definition: JobDefinition, request: Request) -> Metadata:
    origin = ambient.write_origin.get()
    return Metadata(
        tenant_id=tenant_for_dispatch(definition, request.tenant_id),
        triggered_by_id=_user_id(request.triggered_by),
        trace=ambient.trace.get(),
        correlation_id=clean_correlation_id(ambient.correlation_id.get()),
        # Only an origin that bars personal data has to follow the work (B170).
        write_origin=origin if origin is not None and origin.is_gated else None,
    )


def _user_id(triggered_by: Any) -> str | None:
    """The key of a user object, or the given key; without either, the ambient user."""
    if triggered_by is None:
        return ambient.user_id.get()
    key = getattr(triggered_by, "pk", triggered_by)
    return None if key is None else str(key)


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
        delay = max(0, round(request.run_at.timestamp() * 1000) - now_ms)
    if delay > MAX_DELAY_MS:
        raise ValueError(f"{where}: a delay of more than ten years is not supported.")
    return delay


def _seconds(delay: object, where: str) -> float:
    seconds = delay.total_seconds() if isinstance(delay, dt.timedelta) else delay
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e12:
        raise ValueError(f"{where}: delay must be seconds or a timedelta from 0 on, not {delay!r}.")
    return float(seconds)
