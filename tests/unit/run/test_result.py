"""What of a return value is kept; it is never a reason to fail (P32, bullmq-python 1.12)."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from kumiko_django.run.result import MAX_RESULT_CHARS, keepable


class Hostile(Mapping[str, Any]):
    """A mapping that raises whatever it is told to."""

    def __getitem__(self, key: str) -> Any:
        raise RuntimeError("no")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("no items today")

    def __len__(self) -> int:
        return 1


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (None, None),
        (0, 0),
        ("", ""),
        ({"a": (1, 2)}, {"a": [1, 2]}),
        (dt.datetime(2026, 3, 29, 2, 30, tzinfo=dt.UTC), "2026-03-29T02:30:00Z"),
        (decimal.Decimal("1.10"), "1.10"),
        (uuid.UUID(int=7), "00000000-0000-0000-0000-000000000007"),
    ],
)
def test_json_is_kept(value: Any, kept: Any) -> None:
    assert keepable(value) == (kept, "")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (object(), "object"),
        (float("nan"), "nan"),
        ({1: 2}, "key"),
        ({1, 2}, "set"),
        (b"bytes", "bytes"),
        ("x" * 2_000_000, "2,000,002 characters"),
        (endless(), "levels deep"),
        (Hostile(), "no items today"),
        (10**5000, "result"),
    ],
    ids=["object", "nan", "int-key", "set", "bytes", "huge", "endless", "hostile", "number"],
)
def test_everything_else_is_noted_and_not_kept(value: Any, why: str) -> None:
    result, note = keepable(value)
    assert result is None
    assert note.startswith("result not kept: ")
    assert why in note


def test_the_limit_is_exact() -> None:
    assert keepable("x" * (MAX_RESULT_CHARS - 2))[1] == ""
    assert keepable("x" * (MAX_RESULT_CHARS - 1))[0] is None
