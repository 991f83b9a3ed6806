"""Turning Python values into JSON values, or saying exactly where that is impossible (P33).

Dates, decimals, UUIDs, enums and lazy texts are written the way Django's JSON encoder writes them,
except that microseconds are kept, so that a value comes back equal through a schema. Everything
else is refused with the path to it.
"""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import math
import uuid
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any, Final, TypeAlias

from django.utils.duration import duration_iso_string
from django.utils.functional import Promise

from kumiko_django.exceptions import PayloadError

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"
"""What JSON has."""

_MAX_DEPTH: Final = 64
_MAX_INT_BITS: Final = 2_000
"""About 600 digits: what Python converts from and to text under its strictest limit."""
_MAX_KEY_SHOWN: Final = 60
_AS_IT_IS: Final = frozenset({str, bool, type(None)})

_Fallback: TypeAlias = Callable[[object], str]


class _Stuck(Exception):
    """A value without a JSON form.

    The way to it is noted while leaving, level by level: noting it on the way in would cost more
    than the conversion itself, for every payload in which all is well.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.parts: list[str] = []


def to_jsonable(value: object, path: str = "payload") -> JSON:
    """Convert ``value`` to JSON types.

    Args:
        value: Anything.
        path: How messages name the place of ``value``.

    Raises:
        PayloadError: Something in it has no JSON form; ``error.path`` says where.
    """
    try:
        return _convert(value, 0, None)
    except _Stuck as stuck:
        place = path + "".join(reversed(stuck.parts))
        raise PayloadError(f"{place} {stuck.problem}", path=place) from None


def to_jsonable_lossy(value: object) -> JSON:
    """Convert ``value`` to JSON types, writing ``str(value)`` where there is no JSON form (P81)."""
    try:
        return _convert(value, 0, _describe)
    except Exception:  # noqa: BLE001  (too deep, or an odd mapping; the caller's line must stand)
        return _describe(value)


def _describe(value: object) -> str:
    try:
        return str.__str__(str(value))
    except Exception:  # noqa: BLE001  (a broken __str__ must not break the caller's log line)
        return f"<{type(value).__name__}>"


def _convert(value: Any, depth: int, fallback: _Fallback | None) -> JSON:
    kind = type(value)
    if kind in _AS_IT_IS:
        plain: JSON = value
        return plain
    # The exact types first, since asking for abstract ones is slow.
    if kind is dict:
        return _convert_mapping(value, _deeper(depth), fallback)
    if kind is list:
        return _convert_list(value, _deeper(depth), fallback)
    if kind is int or kind is float:
        return _convert_number(value, fallback)
    if isinstance(value, enum.Enum):
        return _convert(value.value, depth, fallback)
    if isinstance(value, str):
        # Subclasses (SafeString and the like) become plain text; str() would keep them.
        return str.__str__(value)
    if isinstance(value, int | float):
        return _convert_number(value, fallback)
    if isinstance(value, Mapping):
        return _convert_mapping(value, _deeper(depth), fallback)
    if isinstance(value, list | tuple):
        return _convert_list(value, _deeper(depth), fallback)
    text = _as_text(value)
    return text if text is not None else _refuse(value, _refusal(value), fallback)


def _convert_number(value: float, fallback: _Fallback | None) -> JSON:
    if isinstance(value, int):
        if value.bit_length() > _MAX_INT_BITS:
            return _refuse(value, "is a whole number too long to be written.", fallback)
        return int(value)
    if not math.isfinite(value):
        return _refuse(value, f"is {value!r}, which JSON does not have.", fallback)
    return float(value)


def _refuse(value: object, problem: str, fallback: _Fallback | None) -> str:
    if fallback is None:
        raise _Stuck(problem)
    return fallback(value)


def _deeper(depth: int) -> int:
    # With the fallback too: in a structure that contains itself twice there would be no end to it.
    if depth >= _MAX_DEPTH:
        raise _Stuck(f"is nested more than {_MAX_DEPTH} levels deep, or contains itself.")
    return depth + 1


def _convert_list(
    value: list[Any] | tuple[Any, ...], depth: int, fallback: _Fallback | None
) -> list[JSON]:
    result: list[JSON] = []
    try:
        for item in value:
            result.append(_convert(item, depth, fallback))
    except _Stuck as stuck:
        stuck.parts.append(f"[{len(result)}]")
        raise
    return result


def _convert_mapping(
    value: Mapping[Any, Any], depth: int, fallback: _Fallback | None
) -> dict[str, JSON]:
    result: dict[str, JSON] = {}
    for key, item in value.items():
        text = key if type(key) is str else _key(key, fallback)
        if text in result and fallback is None:
            raise _Stuck(f"has two keys that are both written {text!r}.")
        try:
            result[text] = _convert(item, depth, fallback)
        except _Stuck as stuck:
            stuck.parts.append(f".{_shown(text)}")
            raise
    return result


def _key(key: Any, fallback: _Fallback | None) -> str:
    if isinstance(key, enum.Enum):
        key = key.value
    if isinstance(key, str):
        return str.__str__(key)
    problem = (
        f"has the key {key!r} of type {type(key).__name__}; keys must be text, since JSON would "
        "turn it into text silently. Write it as a string."
    )
    return _refuse(key, problem, fallback)


def _shown(key: str) -> str:
    return key if len(key) <= _MAX_KEY_SHOWN else f"{key[:_MAX_KEY_SHOWN]}..."


def _as_text(value: object) -> str | None:
    if isinstance(value, dt.datetime):
        text = value.isoformat()
        return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text
    if isinstance(value, dt.time):
        return None if value.tzinfo is not None else value.isoformat()
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return duration_iso_string(value)
    if isinstance(value, decimal.Decimal):
        return str(value) if value.is_finite() else None
    if isinstance(value, uuid.UUID | Promise | PurePath):
        return str.__str__(str(value))
    return None


def _refusal(value: Any) -> str:
    if isinstance(value, dt.time):
        return "is a time with a time zone, which has no ISO form; send a datetime."
    if isinstance(value, decimal.Decimal):
        return f"is {value!r}, which JSON does not have."
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    return f"is a {kind}, which cannot travel as JSON. {_hint(value)}."


def _hint(value: Any) -> str:
    if hasattr(value, "_meta") and hasattr(value, "pk"):
        return "Send its primary key and load the row in the handler"
    if hasattr(value, "values_list"):
        return "Send the primary keys, list(....values_list('pk', flat=True)), or the filter"
    if isinstance(value, set | frozenset):
        return "Send a sorted list"
    if isinstance(value, bytes | bytearray | memoryview):
        return "Store the bytes in a file and send its name, or send text"
    if hasattr(value, "read"):
        return "Store the file and send its name"
    if hasattr(type(value), "__dataclass_fields__") or hasattr(type(value), "model_fields"):
        return "Give the job a schema=, or send a dict"
    if callable(value):
        return "Send its name"
    return "Send plain values"
