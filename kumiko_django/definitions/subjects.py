"""Whose personal data a payload holds, as the job's definition says (``subject_fields``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kumiko_django.definitions.fan_out import wrapper_name
from kumiko_django.definitions.job import JobDefinition

ERASED = "[[erased]]"
"""What stands where a person's data was."""


def names_of(definitions: Iterable[JobDefinition]) -> dict[str, JobDefinition]:
    """The definitions with subject fields, by each name that their jobs may have or have had."""
    return {
        name: definition
        for definition in definitions
        if definition.subject_fields
        for plain in (definition.qualified_name, *definition.qualified_aliases)
        for name in (plain, wrapper_name(plain))
    }


def is_about(payload: Any, definition: JobDefinition, subject: str) -> bool:
    """Whether a payload names the person in one of the job's subject fields.

    Values are compared as text, so that ``7`` is ``"7"``; of lists each element.
    """
    return any(
        value == subject
        for path in definition.subject_fields
        for value in _values(payload, path.split("."))
    )


def _values(value: Any, path: list[str]) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _values(each, path)
    elif path:
        if isinstance(value, Mapping) and path[0] in value:
            yield from _values(value[path[0]], path[1:])
    elif isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        yield str(value)
