"""What travels through Redis: one flat object, payload keys beside reserved ``_`` keys (design 5).

Writing, metadata comes from us alone: a payload with a reserved key is refused (P67, P69). Reading,
nothing is taken on trust, since other BullMQ clients may write to the same queues: what is
malformed and harmless is dropped, a malformed write origin refuses the run (B072-B078, B172).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

from kumiko_django.conf import get_settings
from kumiko_django.exceptions import PayloadError, PayloadTooLarge
from kumiko_django.types.ambient import TraceContext
from kumiko_django.types.correlation import clean_correlation_id
from kumiko_django.types.jsonable import JSON
from kumiko_django.types.origin import WriteOrigin
from kumiko_django.types.trace import TraceParent

FORMAT_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class TriggerEvent:
    """The event that started a job, for the handler's own idempotency keys (B120)."""

    id: str
    headers: Mapping[str, str | int | float | bool]


@dataclass(frozen=True, slots=True)
class Metadata:
    """Everything about a job that is not its payload."""

    tenant_id: str | None = None
    triggered_by_id: str | None = None
    trigger_name: str | None = None
    trigger_event: TriggerEvent | None = None
    trace: TraceContext | None = None
    correlation_id: str | None = None
    write_origin: WriteOrigin | None = None
    parent_run: UUID | None = None


@dataclass(frozen=True, slots=True)
class Envelope:
    """A job's payload and metadata on their way to the queue."""

    payload: Mapping[str, JSON]
    meta: Metadata = field(default_factory=Metadata)

    def to_data(self) -> dict[str, JSON]:
        """The job data; errors as :meth:`encode`."""
        return self.encode()[0]

    def encode(self) -> tuple[dict[str, JSON], str]:
        """The job data, and the same as JSON.

        Raises:
            PayloadError: The payload has a reserved key.
            PayloadTooLarge: The encoded data is over ``MAX_PAYLOAD_BYTES``.
        """
        refuse_reserved_keys(self.payload)
        data: dict[str, JSON] = {**self.payload, **_wire(self.meta), "_v": FORMAT_VERSION}
        text = as_json(data)
        _check_size(len(text))
        return data, text

    def for_tenants(self) -> TenantEnvelopes:
        """The same envelope for many tenants, encoded once."""
        return TenantEnvelopes(self)


class TenantEnvelopes:
    """One envelope for many tenants.

    It is not measured again: what travelled within ``MAX_PAYLOAD_BYTES`` as a wrapper must not be
    too large as its child, whose metadata are a little longer.
    """

    def __init__(self, envelope: Envelope) -> None:
        meta = _wire(replace(envelope.meta, tenant_id=None))
        self._data: dict[str, JSON] = {**envelope.payload, **meta, "_v": FORMAT_VERSION}
        self._text = as_json(self._data)
        self.size = len(self._text)
        """Bytes of one, without its tenant's id."""

    def encode(self, tenant_id: str) -> tuple[dict[str, JSON], str]:
        """The job data for a tenant, and the same as JSON."""
        tenant = f',"_tenantId":{_encoder.encode(tenant_id)}}}'
        return {**self._data, "_tenantId": tenant_id}, self._text[:-1] + tenant


def refuse_reserved_keys(payload: Mapping[str, JSON]) -> None:
    """Refuse a payload with keys that only metadata may have (P67, P69).

    Raises:
        PayloadError: It has one.
    """
    for key in payload:
        if key.startswith("_"):
            raise PayloadError(
                f"payload.{key}: keys that begin with '_' are reserved for metadata. "
                "Rename the key.",
                path=f"payload.{key}",
            )


def _wire(meta: Metadata) -> dict[str, JSON]:
    """Absent, not null, where there is nothing to say (B236)."""
    values: dict[str, Any] = {
        "_tenantId": meta.tenant_id,
        "_triggeredById": meta.triggered_by_id,
        "_triggerName": meta.trigger_name,
        "_correlationId": meta.correlation_id,
        "_parentRunId": None if meta.parent_run is None else str(meta.parent_run),
    }
    if meta.trigger_event is not None:
        values["_triggerEvent"] = {
            "id": meta.trigger_event.id,
            "headers": dict(meta.trigger_event.headers),
        }
    if meta.trace is not None:
        values["_traceContext"] = {"traceId": meta.trace.trace_id, "spanId": meta.trace.span_id}
        if (parent := meta.trace.parent) is not None:
            values["_traceparent"] = str(parent)
    if meta.write_origin is not None:
        values["_writeOrigin"] = meta.write_origin.to_wire()
    return {key: value for key, value in values.items() if value is not None}


def as_json(data: Mapping[str, JSON]) -> str:
    """Job data as the package writes it, in ASCII."""
    return _encoder.encode(data)


_encoder: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def _check_size(size: int) -> None:
    limit = get_settings().max_payload_bytes
    if size > limit:
        raise PayloadTooLarge(
            f'The job data is {size:,} bytes; KUMIKO["MAX_PAYLOAD_BYTES"] allows {limit:,}. '
            "Store the bulk in a file or table and send its key."
        )


def read_payload(data: object) -> dict[str, JSON]:
    """The payload in job data: everything without a leading underscore (B072).

    Raises:
        PayloadError: The data is no object.
    """
    return {key: value for key, value in _object(data).items() if not key.startswith("_")}


def read_metadata(data: object) -> Metadata:
    """The metadata in job data, each part checked for itself.

    Raises:
        MalformedOrigin: There is a write origin and it cannot be read (B133).
        PayloadError: The data is no object.
    """
    raw = _object(data)
    origin = raw.get("_writeOrigin")
    return Metadata(
        tenant_id=_text(raw.get("_tenantId")),
        triggered_by_id=_text(raw.get("_triggeredById")),
        trigger_name=_text(raw.get("_triggerName")),
        trigger_event=_trigger_event(raw.get("_triggerEvent")),
        trace=_trace(raw.get("_traceparent"), raw.get("_traceContext")),
        correlation_id=clean_correlation_id(raw.get("_correlationId")),
        write_origin=None if origin is None else WriteOrigin.from_wire(origin),
        parent_run=_uuid(raw.get("_parentRunId")),
    )


def _object(data: object) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise PayloadError(f"The job data is {type(data).__name__}, not an object.")
    return data


def _text(value: object) -> str | None:
    if isinstance(value, bool) or value is None:
        return None
    return str(value) if isinstance(value, str | int) and str(value) else None


def _uuid(value: object) -> UUID | None:
    try:
        return UUID(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _trigger_event(value: object) -> TriggerEvent | None:
    """Lenient: a malformed event is as good as none (B073, B120)."""
    if not isinstance(value, dict):
        return None
    event_id, headers = value.get("id"), value.get("headers")
    if not isinstance(event_id, str) or not isinstance(headers, dict):
        return None
    if not all(isinstance(header, str | int | float | bool) for header in headers.values()):
        return None
    return TriggerEvent(event_id, headers)


def _trace(header: object, value: object) -> TraceContext | None:
    """W3C's form, which also says what is kept, before the original's (P91).

    Of the latter both ids or nothing; anything else in it is dropped (B074).
    """
    if header is not None and (parent := TraceParent.parse(header)) is not None:
        return TraceContext.at(parent)
    if not isinstance(value, dict):
        return None
    trace_id, span_id = value.get("traceId"), value.get("spanId")
    if isinstance(trace_id, str) and isinstance(span_id, str) and trace_id and span_id:
        return TraceContext(trace_id[:64], span_id[:64])
    return None
