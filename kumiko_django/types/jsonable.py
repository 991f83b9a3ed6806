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
from typing import Any, TypeAlias

from django.utils.duration import duration_iso_string
from django.utils.functional import Promise

from kumiko_django.exceptions import PayloadError

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"
"""What JSON has."""

_MAX_DEPTH = 64


def to_jsonable(value: object, path: str = "payload") -> JSON:
    """Convert ``value`` to JSON types.

    Args:
        value: Anything.
        path: How messages name the place of ``value``.

    Raises:
        PayloadError: Something in it has no JSON form; ``error.path`` says where.
    """
    return _convert(value, path, 0)


def to_jsonable_lossy(value: object) -> JSON:
    """Convert ``value`` to JSON types, writing ``str(value)`` where there is no JSON form (P81)."""
    try:
        return _convert(value, "value", 0, fallback=_describe)
    except PayloadError:
        return _describe(value)


def _describe(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001  (a broken __str__ must not break the caller's log line)
        return f"<{type(value).__name__}>"


def _convert(
    value: object, path: str, depth: int, fallback: Callable[[object], str] | None = None
) -> JSON:
    if isinstance(value, enum.Enum):
        return _convert(value.value, path, depth, fallback)
    if value is None or isinstance(value, bool | str):
        # str subclasses (SafeString and the like) become plain text.
        return str(value) if isinstance(value, str) else value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        if fallback:
            return fallback(value)
        raise PayloadError(f"{path} is {value!r}, which JSON does not have.", path=path)
    if depth > _MAX_DEPTH:
        raise PayloadError(f"{path} is nested more than {_MAX_DEPTH} levels deep.", path=path)
    if isinstance(value, Mapping):
        return _convert_mapping(value, path, depth, fallback)
    if isinstance(value, list | tuple):
        return [
            _convert(item, f"{path}[{index}]", depth + 1, fallback)
            for index, item in enumerate(value)
        ]
    text = _as_text(value, path)
    if text is not None:
        return text
    if fallback:
        return fallback(value)
    raise PayloadError(_refusal(value, path), path=path)


def _convert_mapping(
    value: Mapping[Any, object],
    path: str,
    depth: int,
    fallback: Callable[[object], str] | None,
) -> dict[str, JSON]:
    result: dict[str, JSON] = {}
    for key, item in value.items():
        if isinstance(key, enum.Enum):
            key = key.value
        if not isinstance(key, str):
            if not fallback:
                raise PayloadError(
                    f"{path} has the key {key!r} of type {type(key).__name__}; keys must be text, "
                    "since JSON would turn it into text silently. Write it as a string.",
                    path=path,
                )
            key = fallback(key)
        result[str(key)] = _convert(item, f"{path}.{key}", depth + 1, fallback)
    return result


def _as_text(value: object, path: str) -> str | None:
    if isinstance(value, dt.datetime):
        text = value.isoformat()
        return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text
    if isinstance(value, dt.time):
        if value.tzinfo is not None:
            raise PayloadError(
                f"{path} is a time with a time zone, which has no ISO form; send a datetime.",
                path=path,
            )
        return value.isoformat()
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return duration_iso_string(value)
    if isinstance(value, decimal.Decimal | uuid.UUID | Promise | PurePath):
        return str(value)
    return None


def _refusal(value: object, path: str) -> str:
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    hint = "Send plain values"
    if hasattr(value, "_meta") and hasattr(value, "pk"):
        hint = "Send its primary key and load the row in the handler"
    elif isinstance(value, set | frozenset):
        hint = "Send a sorted list"
    elif isinstance(value, bytes | bytearray | memoryview):
        hint = "Store the bytes in a file and send its name, or send text"
    return f"{path} is a {kind}, which cannot travel as JSON. {hint}."
