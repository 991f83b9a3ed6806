"""One event: what a caller says about it, checked before anybody listens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from uuid import UUID

from kumiko_django.broker.envelope import TriggerEvent, refuse_reserved_keys
from kumiko_django.definitions.on import emitted_name_problem, event_name_problem
from kumiko_django.exceptions import PayloadError
from kumiko_django.types.ids import new_job_id
from kumiko_django.types.jsonable import JSON, to_jsonable

MAX_EVENT_ID_LENGTH: Final = 255

EventId: TypeAlias = str | int | UUID | None
Headers: TypeAlias = "Mapping[str, str | int | float | bool]"


@dataclass(frozen=True, slots=True)
class Event:
    """An event that may be emitted.

    Attributes:
        name: What jobs listen to.
        payload: As the caller has given it, for the schemas of jobs.
        encoded: The same as JSON values, for conditions.
        source: Its id and headers, which travel; None if it was given neither.
    """

    name: str
    payload: Mapping[str, Any]
    encoded: dict[str, JSON]
    source: TriggerEvent | None

    @classmethod
    def of(
        cls,
        name: object,
        payload: object,
        event_id: object,
        headers: object,
        *,
        of_handler: bool = False,
    ) -> Event:
        """Check what was given; ``of_handler`` where a write handler sends the event.

        Raises:
            ValueError: The name, the id or the headers are wrong.
            PayloadError: The payload cannot travel.
        """
        problem = (event_name_problem if of_handler else emitted_name_problem)(name)
        if problem is not None:
            raise ValueError(problem)
        where = f"event {name}"
        given = {} if payload is None else payload
        if not isinstance(given, Mapping):
            raise PayloadError(
                f"{where}: payload must be a mapping of names to values, "
                f"not {type(payload).__name__}."
            )
        return cls(str(name), given, _encoded(given, where), _source(event_id, headers, where))


def _encoded(payload: Mapping[str, Any], where: str) -> dict[str, JSON]:
    try:
        encoded = to_jsonable(payload)
        if isinstance(encoded, dict):
            refuse_reserved_keys(encoded)
    except PayloadError as error:
        raise type(error)(f"{where}: {error}", path=error.path) from error
    return encoded if isinstance(encoded, dict) else {}


def _source(event_id: object, headers: object, where: str) -> TriggerEvent | None:
    if event_id is None and headers is None:
        return None
    text = new_job_id() if event_id is None else _id(event_id, where)
    return TriggerEvent(text, {} if headers is None else _headers(headers, where))


def _id(event_id: object, where: str) -> str:
    is_id = isinstance(event_id, str | int | UUID) and not isinstance(event_id, bool)
    # An enumeration's member by what it stands for.
    text = str(to_jsonable(event_id, f"{where}: event_id")) if is_id else ""
    if not text or not text.isprintable() or len(text) > MAX_EVENT_ID_LENGTH:
        raise ValueError(
            f"{where}: event_id must be a UUID, a whole number, or a text of 1 to "
            f"{MAX_EVENT_ID_LENGTH} printable characters, not {text[:40] or event_id!r}."
        )
    return text


def _headers(headers: object, where: str) -> dict[str, str | int | float | bool]:
    pairs = headers.items() if isinstance(headers, Mapping) else [(None, headers)]
    return dict(_header(name, value, where) for name, value in pairs)


def _header(name: object, value: object, where: str) -> tuple[str, str | int | float | bool]:
    encoded = to_jsonable(value, f"{where}: headers[{name!r}]")
    if isinstance(name, str) and isinstance(encoded, str | int | float):
        return name, encoded
    raise ValueError(
        f"{where}: headers must be a mapping of names to text, numbers, true or false; {name!r} is "
        f"{value!r}. Leave out what is None, and put the rest into the payload."
    )
