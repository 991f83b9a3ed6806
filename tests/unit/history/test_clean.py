"""Values that a database refuses are made fit, and nothing else is touched."""

from __future__ import annotations

import datetime as dt
import json
import math
from typing import Any

import pytest

from kumiko_django.history.clean import clean_row, clean_text


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("plain é 😀", "plain é 😀"),
        ("a\x00b", "a\ufffdb"),
        ("\ud800 alone", "\ufffd alone"),
        ("\udfff", "\ufffd"),
        ("", ""),
    ],
)
def test_characters_that_no_database_takes_are_replaced(text: str, stored: str) -> None:
    assert clean_text(text) == stored


def test_texts_are_cut_to_their_column() -> None:
    row = clean_row({"job_name": "x" * 500, "reason": "y" * 500, "error": "z" * 500})
    assert {name: len(value) for name, value in row.items()} == {
        "job_name": 200,
        "reason": 255,
        "error": 500,
    }


def test_json_is_cleaned_to_the_bottom() -> None:
    value = {"k\x00": ["\ud800", {"deep": "\x00"}], "n": [1, 1.5, True, None]}
    assert clean_row({"payload": value})["payload"] == {
        "k\ufffd": ["\ufffd", {"deep": "\ufffd"}],
        "n": [1, 1.5, True, None],
    }


@pytest.mark.parametrize(
    ("number", "stored"),
    [
        (math.nan, "nan"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (2**64, 2**64),
        (10**1000, 10**1000),
        (10**5000, "(a number of 16610 bits)"),
        (-(10**5000), "(a number of 16610 bits)"),
    ],
    ids=["nan", "inf", "-inf", "64-bits", "1000-digits", "5000-digits", "minus-5000-digits"],
)
def test_numbers_that_json_has_not(number: float, stored: Any) -> None:
    """user-needs 38: Python reads NaN and endless numbers; databases do not."""
    cleaned = clean_row({"payload": {"n": number}})["payload"]
    assert cleaned == {"n": stored}
    json.dumps(cleaned, allow_nan=False)


def test_what_is_nested_too_deep_is_cut() -> None:
    value: Any = "bottom"
    for _ in range(900):
        value = [value]
    cleaned = clean_row({"payload": value})["payload"]
    depth = 0
    while isinstance(cleaned, list):
        (cleaned,) = cleaned
        depth += 1
    assert (depth, cleaned) == (101, "(nested more than 100 levels deep)")


def test_other_values_are_left_alone() -> None:
    now = dt.datetime.now(dt.UTC)
    row = {"started_at": now, "wait_ms": None, "final": True, "attempt": 3, "payload": None}
    assert clean_row(row) == row
