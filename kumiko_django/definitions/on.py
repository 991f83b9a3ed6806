"""The trigger of events: ``On``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias

from kumiko_django.definitions import names
from kumiko_django.exceptions import DefinitionError, PayloadError
from kumiko_django.types.jsonable import JSON, to_jsonable

MAX_EVENT_NAME_LENGTH: Final = 200
"""In characters; the history's column ``trigger`` is a little wider."""

Scalar: TypeAlias = "bool | int | float | str | None"


@dataclass(frozen=True, slots=True, init=False)
class On:
    """An event starts the job: one that is emitted under one of some names, and fits ``where``.

    Attributes:
        events: The names.
        where: Values that top-level fields of the event's payload must have, as they travel: an
            enum as its value, a date as text. Empty: every event fits.
    """

    events: tuple[str, ...]
    where: Mapping[str, Scalar] = field(hash=False)

    def __init__(
        self, *events: str | Iterable[str], where: Mapping[str, object] | None = None
    ) -> None:
        """Listen to ``events``: names, or lists of names.

        Raises:
            DefinitionError: A name or a condition is wrong.
        """
        object.__setattr__(self, "events", _check_events(events))
        object.__setattr__(self, "where", MappingProxyType(_check_where(where)))

    def matches(self, event: str, payload: Mapping[str, JSON]) -> bool:
        """Whether an event of this name and payload, as it travels, starts the job.

        Type and value must be equal: ``1`` is neither ``True`` nor ``"1"`` nor ``1.0``, and a field
        that is not there is not None (B116, P70).
        """
        return event in self.events and all(
            key in payload and _same(payload[key], value) for key, value in self.where.items()
        )


def event_name_problem(name: object) -> str | None:
    """What is wrong with the name of an event; None if nothing is."""
    if not isinstance(name, str) or not name:
        return f"The name of an event is a text such as 'order.placed', not {name!r}."
    if name != name.strip() or not name.isprintable():
        return f"The event name {name!r} has space at an end, or control characters."
    if len(name) > MAX_EVENT_NAME_LENGTH:
        return f"The event name {name[:20]!r}... is longer than {MAX_EVENT_NAME_LENGTH} characters."
    return None


def emitted_name_problem(name: object) -> str | None:
    """The same for an event that anybody emits: those of write handlers only these send.

    So a job that listens to a write may rely on the access rules of its handler.
    """
    problem = event_name_problem(name)
    if problem is None and names.is_qualified(str(name), "write", "query"):
        return (
            f"The event name {name!r} is that of a handler, and only a write that has succeeded "
            "sends it. Call the handler, or choose a name of another form."
        )
    return problem


def _same(one: JSON, other: Scalar) -> bool:
    return type(one) is type(other) and one == other


def _check_events(given: Iterable[object]) -> tuple[str, ...]:
    events: list[str] = []
    for item in given:
        for name in item if isinstance(item, list | tuple | set | frozenset) else (item,):
            problem = event_name_problem(name)
            if problem is not None:
                raise DefinitionError(f"On(...): {problem}")
            if name in events:
                raise DefinitionError(f"On(...): the event {name!r} is given twice; drop one.")
            events.append(str(name))
    if not events:
        raise DefinitionError("On() names no event; write On('order.placed').")
    return tuple(events)


def _check_where(where: object) -> dict[str, Scalar]:
    if where is None:
        return {}
    if not isinstance(where, Mapping):
        raise DefinitionError(
            "On(...): where must be a mapping of payload fields to values, such as "
            f"{{'country': 'DE'}}, not {where!r}."
        )
    return {_check_field(key): _check_value(key, value) for key, value in where.items()}


def _check_field(key: object) -> str:
    if not isinstance(key, str) or not key:
        raise DefinitionError(f"On(...): where has the field {key!r}; fields are names.")
    if key.startswith("_"):
        raise DefinitionError(
            f"On(...): where has the field {key!r}, but no payload has keys that begin with '_'."
        )
    return key


def _check_value(key: str, value: object) -> Scalar:
    try:
        encoded = to_jsonable(value, f"where[{key!r}]")
    except PayloadError as error:
        raise DefinitionError(f"On(...): {error}") from error
    if isinstance(encoded, list | dict):
        raise DefinitionError(
            f"On(...): where[{key!r}] is {value!r}, and nested values never match. Compare a "
            "top-level field of the payload with a single value."
        )
    return encoded
