"""``tenant_visible_failure`` and ``tenant_visible_run``: what a job lets its tenant see."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from kumiko_django.definitions.triggers import Cron, Every
from kumiko_django.exceptions import DefinitionError, PayloadError
from kumiko_django.types.visible import MAX_MESSAGE_KEY_LENGTH, is_message_key

if TYPE_CHECKING:
    from kumiko_django.definitions.job import JobDefinition


@dataclass(frozen=True, slots=True)
class VisibleFailure:
    """The tenant is told when the job has failed for good, until a later success (B184, P109).

    Attributes:
        message_key: What it is told, as a key of the host's translations: letters, digits and
            ``_ . : / -``, at most 200 of them. An error of this package's kind that has a
            ``message_key`` of its own overrides it.
        subject: Fields of the payload; failures and successes of one subject belong together.

    Raises:
        DefinitionError: A value is wrong.
    """

    message_key: str
    subject: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not is_message_key(self.message_key):
            raise DefinitionError(
                "VisibleFailure: message_key must be letters, digits and _ . : / -, at most "
                f"{MAX_MESSAGE_KEY_LENGTH} of them, e.g. 'billing.reminder_failed', not "
                f"{self.message_key!r}."
            )
        object.__setattr__(self, "subject", _check_subject(self.subject, "VisibleFailure"))


@dataclass(frozen=True, slots=True)
class VisibleRun:
    """The tenant sees the latest run of each subject: that it runs, and how it ended (B184b).

    Attributes:
        subject: Fields of the payload; runs of one subject are one record.

    Raises:
        DefinitionError: A value is wrong.
    """

    subject: Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "subject", _check_subject(self.subject, "VisibleRun"))


def check_visible(definition: JobDefinition, where: str) -> None:
    """Check the two options of a definition whose other options are right.

    Raises:
        DefinitionError: A value or combination is wrong.
    """
    for option, kind, example in (
        ("tenant_visible_run", VisibleRun, "VisibleRun(subject=('invoice_id',))"),
        (
            "tenant_visible_failure",
            VisibleFailure,
            "VisibleFailure('billing.reminder_failed', subject=('invoice_id',))",
        ),
    ):
        value = getattr(definition, option)
        if value is None:
            continue
        if not isinstance(value, kind):
            raise DefinitionError(f"{where}: {option} must be {example}, not {value!r}.")
        if definition.tenant == "system":
            raise DefinitionError(
                f"{where}: {option} shows something to a tenant, and tenant='system' says that "
                "the job has none. Drop one of the two."
            )
        _check_fields(definition, value.subject, f"{where}: {option}")


def _check_subject(subject: object, kind: str) -> tuple[str, ...]:
    if isinstance(subject, str):
        raise DefinitionError(f"{kind}: subject is a tuple of fields; write ({subject!r},).")
    if not isinstance(subject, Iterable):
        raise DefinitionError(f"{kind}: subject must be a tuple of fields, not {subject!r}.")
    fields = tuple(subject)
    for name in fields:
        # A number would be a place in a list to whoever looks for it in JSON.
        is_key = isinstance(name, str) and bool(name) and not name.lstrip("-").isdecimal()
        if not is_key or name.startswith("_"):
            raise DefinitionError(
                f"{kind}: subject must name keys of the payload: texts that are no numbers and do "
                f"not begin with '_'; {name!r} is none."
            )
        if fields.count(name) > 1:
            raise DefinitionError(f"{kind}: subject has {name!r} twice; drop one.")
    return fields


def _check_fields(definition: JobDefinition, subject: Sequence[str], what: str) -> None:
    known = keys_of_schema(definition.schema)
    unknown = [] if known is None else sorted(set(subject) - known)
    if unknown:
        raise DefinitionError(
            f"{what} names {unknown[0]!r}, which the payloads of its schema do not have. They "
            f"have: {', '.join(sorted(known or ()))}."
        )
    empty = _payload_without_caller(definition)
    missing = [] if empty is None else sorted(set(subject) - empty)
    if missing:
        raise DefinitionError(
            f"{what} names {missing[0]!r}, but a clock or a boot starts the job with an empty "
            "payload. Drop the field from the subject, or give it a default in a schema."
        )


def keys_of_schema(schema: Any) -> set[str] | None:
    """The keys of its payloads; None if any may be there, or nobody can tell."""
    if not isinstance(schema, type):
        return None
    if issubclass(schema, BaseModel) and schema.model_config.get("extra") == "allow":
        return None
    described = getattr(schema, "__pydantic_fields__", None)
    if isinstance(described, dict):
        named = described.items()
        return {field.serialization_alias or field.alias or name for name, field in named}
    if dataclasses.is_dataclass(schema):
        return {field.name for field in dataclasses.fields(schema)}
    return None


def _payload_without_caller(definition: JobDefinition) -> set[str] | None:
    """The keys of the payload of which a schema makes nothing; None if there is always a caller."""
    by_itself = isinstance(definition.trigger, Cron | Every)
    if not (by_itself or definition.run_on_boot or definition.boot_gate):
        return None
    if definition.payload_schema is None:
        return set()
    try:
        return set(definition.payload_schema.dump(definition.payload_schema.load({})))
    except (PayloadError, DefinitionError):
        return None  # told elsewhere, or once all is defined
