"""What a definition says about personal data: that it accepts it, and whose its payloads hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kumiko_django.definitions.visible import keys_of_schema
from kumiko_django.exceptions import DefinitionError

if TYPE_CHECKING:
    from kumiko_django.definitions.job import JobDefinition

MAX_REASON_LENGTH: Final = 255


def check_reason(reason: object, where: str, fix: str) -> str:
    """A reason for the record: one line of text that says something.

    Raises:
        DefinitionError: It is none; the message ends with ``fix``.
    """
    if not isinstance(reason, str) or not reason.strip():
        raise DefinitionError(f"{where}: a reason is needed, not {reason!r}. {fix}")
    text = reason.strip()
    if len(text) > MAX_REASON_LENGTH or not text.isprintable():
        raise DefinitionError(
            f"{where}: a reason is one line of at most {MAX_REASON_LENGTH} characters. {fix}"
        )
    return text


def check_personal(definition: JobDefinition, where: str) -> tuple[str | None, tuple[str, ...]]:
    """``accepts_personal_data`` and ``subject_fields`` of a definition, as they are kept.

    Raises:
        DefinitionError: One of them is wrong.
    """
    reason: object = definition.accepts_personal_data
    if reason is not None:
        fix = 'Write accepts_personal_data="why it must be so", or leave it out.'
        reason = check_reason(reason, f"{where}: accepts_personal_data", fix)
    fields = _check_subject_fields(definition.subject_fields, where)
    known = keys_of_schema(definition.schema)
    unknown = [] if known is None else [f for f in fields if f.split(".")[0] not in known]
    if unknown:
        raise DefinitionError(
            f"{where}: subject_fields names {unknown[0]!r}, which the payloads of its schema do "
            f"not have. They have: {', '.join(sorted(known or ()))}."
        )
    return reason, fields


def _check_subject_fields(given: object, where: str) -> tuple[str, ...]:
    if isinstance(given, str):
        raise DefinitionError(f"{where}: subject_fields is a tuple of fields; write ({given!r},).")
    if not isinstance(given, Iterable):
        raise DefinitionError(f"{where}: subject_fields must be a tuple of fields, not {given!r}.")
    fields = tuple(given)
    for name in fields:
        parts = name.split(".") if isinstance(name, str) else [""]
        if not all(parts) or parts[0].startswith("_"):
            raise DefinitionError(
                f"{where}: subject_fields must name keys of the payload, e.g. 'customer_id', or "
                f"'customer.id' for one within another; {name!r} is none."
            )
        if fields.count(name) > 1:
            raise DefinitionError(f"{where}: subject_fields has {name!r} twice; drop one.")
    return fields
