"""What a tenant may see of a run: which subject it is about, and a message's key; no error text.

A subject is the values of some fields of the payload. Records of one subject are one, so its key
must be the same wherever and whenever it is made (P108): every value has a tag for its type, texts
are in the normal form C of Unicode, and the key begins with the version of these rules.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kumiko_django.types.jsonable import JSON

VERSION: Final = 1
MAX_KEY_LENGTH: Final = 255
"""Longest key in characters. What would be longer is its version, ``#`` and a SHA-256 instead."""
MAX_MESSAGE_KEY_LENGTH: Final = 200
_MAX_SHOWN: Final = 200
"""Characters that are kept of a text to be shown; the key is made of all of them."""
_MAX_BITS: Final = 4096
_MESSAGE_KEY: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]*")


class SubjectError(ValueError):
    """A payload has no subject: a field is missing, or its value is no single one (B182)."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a run is about.

    Attributes:
        key: Equal for equal subjects only; ASCII, at most :data:`MAX_KEY_LENGTH` characters.
        values: The fields and their values, for people; long texts are cut.
    """

    key: str
    values: dict[str, JSON]


@dataclass(frozen=True, slots=True)
class Visible:
    """What the tenant of a run may see of it.

    Attributes:
        tenant_id: Whose it is.
        job_name: Qualified name of its job.
        started_at: When it began; after a deferral, when it went on. Later runs overrule earlier
            ones.
        failure: The subject of a failure or a success; None where the job declares none.
        message_key: What the tenant is told of a failure.
        run: The subject of the run; None where the job declares none.
    """

    tenant_id: str
    job_name: str
    started_at: dt.datetime
    failure: Subject | None = None
    message_key: str = ""
    run: Subject | None = None

    def to_json(self) -> dict[str, Any]:
        """What the record of a run does not have elsewhere."""
        return {
            "failure": _subject_to_json(self.failure),
            "message_key": self.message_key,
            "run": _subject_to_json(self.run),
        }

    @classmethod
    def from_json(
        cls, value: Any, tenant_id: str, job_name: str, started_at: dt.datetime
    ) -> Visible:
        """What :meth:`to_json` gave, with the rest from the record.

        Raises:
            TypeError, KeyError, ValueError: It is none.
        """
        message_key = value["message_key"]
        if message_key and not is_message_key(message_key):
            raise ValueError("that is no key of a message")
        return cls(
            tenant_id,
            job_name,
            started_at,
            failure=_subject_from_json(value["failure"]),
            message_key=message_key,
            run=_subject_from_json(value["run"]),
        )


def is_message_key(value: object) -> bool:
    """Whether it is a key, and no text in which something about the error could be said (B184)."""
    return (
        isinstance(value, str)
        and len(value) <= MAX_MESSAGE_KEY_LENGTH
        and _MESSAGE_KEY.fullmatch(value) is not None
    )


def subject_of(payload: Mapping[str, Any], fields: Sequence[str]) -> Subject:
    """The subject that ``fields`` of a payload name, in whatever order (B181).

    Args:
        payload: JSON values.
        fields: Names of its keys; none of them for one subject for all.

    Raises:
        SubjectError: One is missing, or is no text, number, true, false or null.
    """
    parts: list[list[str]] = []
    values: dict[str, JSON] = {}
    for name in sorted(fields):
        if name not in payload:
            raise SubjectError(f"the payload has no field {name!r}")
        tag, text, shown = _tagged(name, payload[name])
        parts.append([name, tag, text])
        values[name] = shown
    # Only ASCII, so that no database compares, cuts or refuses any of it in a way of its own.
    text = json.dumps(parts, ensure_ascii=True, separators=(",", ":"))
    return Subject(_key(text), values)


def _key(text: str) -> str:
    key = f"{VERSION}:{text}"
    if len(key) <= MAX_KEY_LENGTH:
        return key
    return f"{VERSION}#{hashlib.sha256(text.encode()).hexdigest()}"


def _tagged(name: str, value: object) -> tuple[str, str, JSON]:
    """The type of a value, the value as text, and as it is shown."""
    if value is None:
        return "n", "", None
    if isinstance(value, bool):
        return "b", "true" if value else "false", value
    if isinstance(value, int) and value.bit_length() <= _MAX_BITS:
        return "i", str(value), value
    if isinstance(value, float) and math.isfinite(value):
        # Minus zero is zero. The shortest text that reads back as the same number.
        return "f", repr(value + 0.0), value + 0.0
    if isinstance(value, str):
        text = unicodedata.normalize("NFC", value)
        return "s", text, text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"
    # Its kind alone: the value may be personal.
    raise SubjectError(
        f"the field {name!r} is {_KINDS.get(type(value), 'no single value')}; a subject is made of "
        "texts, numbers, true, false and null"
    )


_KINDS: Final = {
    dict: "an object",
    list: "a list",
    float: "a number that JSON does not have",
    int: f"a number of more than {_MAX_BITS} bits",
}


def _subject_to_json(subject: Subject | None) -> list[Any] | None:
    return None if subject is None else [subject.key, subject.values]


def _subject_from_json(value: Any) -> Subject | None:
    if value is None:
        return None
    key, values = value
    if not isinstance(key, str) or not isinstance(values, dict) or len(key) > MAX_KEY_LENGTH:
        raise TypeError("that is no subject")
    return Subject(key, values)
