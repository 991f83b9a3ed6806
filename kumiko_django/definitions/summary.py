"""A definition in a few words, for operators: its name, what starts it, what is special."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from kumiko_django.definitions.job import JobDefinition
from kumiko_django.definitions.scheduling import default_concurrency

_TOLD_APART: Final = frozenset({"handler", "name", "app_label", "trigger", "lane", "description"})


@dataclasses.dataclass(frozen=True, slots=True)
class Summary:
    """What operators see of a definition.

    Attributes:
        name: Qualified name.
        lane: Its lane.
        trigger: The kind of its trigger, e.g. ``manual``.
        trigger_details: What the trigger says beyond its kind.
        options: The options that differ from their defaults, as JSON values.
        description: A sentence.
    """

    name: str
    lane: str
    trigger: str
    trigger_details: dict[str, Any]
    options: dict[str, Any]
    description: str


def summary(definition: JobDefinition) -> Summary:
    """The definition in a few words; every option there is comes along by itself."""
    options = {
        field.name: plain(value)
        for field in dataclasses.fields(definition)
        if field.init
        and field.name not in _TOLD_APART
        and (value := getattr(definition, field.name)) != _default(field, definition)
    }
    return Summary(
        name=definition.qualified_name,
        lane=definition.lane,
        trigger=type(definition.trigger).__name__.lower(),
        trigger_details=plain(definition.trigger),
        options=options,
        description=definition.description,
    )


def _default(field: dataclasses.Field[Any], definition: JobDefinition) -> Any:
    if field.name == "concurrency":
        return default_concurrency(definition.trigger, definition.catch_up)
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def plain(value: Any) -> Any:
    """A value of an option as JSON: dataclasses as objects, without what is empty."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if dataclasses.is_dataclass(value):
        fields = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {name: plain(each) for name, each in fields if each is not None}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    return str(value)
