"""What the tenant of a run may see of it, from its definition and its payload."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kumiko_django.conf import get_settings
from kumiko_django.definitions.job import JobDefinition
from kumiko_django.exceptions import KumikoError, PayloadError
from kumiko_django.run.failure import Refused
from kumiko_django.run.outcome import Failed, Outcome, Quarantined
from kumiko_django.types.ids import SYSTEM
from kumiko_django.types.visible import Subject, SubjectError, Visible, is_message_key, subject_of


def visible_of(
    definition: JobDefinition,
    payload: Mapping[str, Any],
    tenant_id: str,
    started_at: dt.datetime,
) -> Visible | None:
    """What a tenant may see of a run; None where the job declares nothing, or there is no tenant.

    Args:
        definition: Its job.
        payload: JSON values, as they have come.
        tenant_id: For whom it runs.
        started_at: When it began, or went on.

    Raises:
        Refused: The payload has not what the declaration names; the declaration of the run is
            looked at first (B182, B183). No value is in the message.
    """
    run, failure = definition.tenant_visible_run, definition.tenant_visible_failure
    if run is None and failure is None:
        return None
    if tenant_id == SYSTEM and get_settings().tenancy_enabled:
        return None
    return Visible(
        tenant_id,
        definition.qualified_name,
        started_at,
        run=None if run is None else _subject(definition, payload, "run", run.subject),
        failure=None
        if failure is None
        else _subject(definition, payload, "failure", failure.subject),
        message_key="" if failure is None else failure.message_key,
    )


def visible_at_end(visible: Visible | None, outcome: Outcome) -> Visible | None:
    """The same for a run that has ended: with the key of its error's own message, if it has one."""
    own = _own_key(outcome)
    if visible is None or visible.failure is None or not own:
        return visible
    return replace(visible, message_key=own)


def message_key(visible: Visible | None, outcome: Outcome | None, *, final: bool) -> str | None:
    """What the tenant is told: nothing of a success, nor before the last attempt (B184, P109)."""
    if visible is None or visible.failure is None or not final:
        return None
    if not isinstance(outcome, Failed | Quarantined):
        return None
    return _own_key(outcome) or visible.message_key


def _own_key(outcome: Outcome) -> str:
    """Only of errors that are made for it: another's attribute of that name may be anything."""
    error = outcome.exception if isinstance(outcome, Failed) else None
    if not isinstance(error, KumikoError):
        return ""
    key = error.message_key
    return key if is_message_key(key) else ""


def _subject(
    definition: JobDefinition, payload: Mapping[str, Any], kind: str, fields: Sequence[str]
) -> Subject:
    if definition.payload_schema is not None and any(name not in payload for name in fields):
        payload = {**_with_defaults(definition, payload), **payload}
    try:
        return subject_of(payload, fields)
    except SubjectError as error:
        raise Refused(f"tenant_visible_{kind} of {definition.qualified_name}: {error}.") from error


def _with_defaults(definition: JobDefinition, payload: Mapping[str, Any]) -> dict[str, Any]:
    """What the schema makes of the payload; nothing where that cannot be told."""
    schema = definition.payload_schema
    try:
        return {} if schema is None else schema.dump(schema.load(payload))
    except PayloadError:
        return {}
