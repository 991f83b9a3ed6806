"""Subjects and keys of messages: what tenants see is told apart by these (B181, B182, P108)."""

from __future__ import annotations

import itertools
import json
import sys
import unicodedata
from typing import Any

import pytest

from kumiko_django.types.visible import (
    MAX_KEY_LENGTH,
    Subject,
    SubjectError,
    Visible,
    is_message_key,
    subject_of,
)
from tests.unit.history.events import CREATED

pytestmark = pytest.mark.once


def key(value: Any) -> str:
    return subject_of({"id": value}, ("id",)).key


def test_the_order_of_the_fields_does_not_matter() -> None:
    """B181."""
    payload = {"c": 1, "a": "x", "b": None, "other": [1]}
    keys = {subject_of(payload, fields).key for fields in itertools.permutations("abc")}
    assert keys == {'1:[["a","s","x"],["b","n",""],["c","i","1"]]'}
    assert subject_of(payload, "ca").values == {"a": "x", "c": 1}


def test_without_fields_there_is_one_subject() -> None:
    """B181: whatever the payload is."""
    assert subject_of({"a": 1}, ()) == subject_of({}, ()) == Subject("1:[]", {})


DIFFERENT = [
    1, 1.0, True, "1", "1.0", "true", "True", None, "", "null", 0, 0.0, False, -1, "a", "A", "a ",
    2**53, 2**53 + 1, float(2**53), 2**64, 10**22, 1e22, 1.5, "[]", '","', "\x00", "\\u0000", "ä",
    "ae", "\ud800", "\ufffd",
]  # fmt: skip


def test_values_that_differ_have_keys_that_differ() -> None:
    """P108: 1, 1.0 and true are three subjects, and so are whole numbers beyond a float's."""
    assert len({key(value) for value in DIFFERENT}) == len(DIFFERENT)
    assert len({json.dumps(value) for value in DIFFERENT}) == len(DIFFERENT)


@pytest.mark.parametrize("value", DIFFERENT, ids=repr)
def test_a_key_survives_json_and_every_database(value: Any) -> None:
    """P108: also after the journey through the queue; ASCII without control characters."""
    assert key(json.loads(json.dumps(value))) == key(value)
    assert key(value).isascii()
    assert key(value).isprintable()


def test_a_text_is_the_same_in_every_form_of_unicode() -> None:
    """P108: as a file's name comes from one system, and as a user types it on another."""
    forms = {unicodedata.normalize(form, "Müller Ångström") for form in ("NFC", "NFD")}
    assert len(forms) == 2
    assert len({key(form) for form in forms}) == 1
    assert subject_of({"id": forms.pop()}, ("id",)).values == {"id": "Müller Ångström"}


def test_minus_zero_is_zero() -> None:
    assert key(-0.0) == key(0.0)


def test_long_subjects_have_short_keys_that_differ() -> None:
    """P108: capped, and still one for each; what is shown is cut, the key is made of all of it."""
    long = "x" * 10_000
    keys = {key(long + end) for end in ("", "a", "b")}
    assert len(keys) == 3
    assert all(len(each) <= MAX_KEY_LENGTH and each.startswith("1#") for each in keys)
    shown = subject_of({"id": long}, ("id",)).values["id"]
    assert isinstance(shown, str)
    assert len(shown) == 200
    longest = "x" * (MAX_KEY_LENGTH - len(key("")))
    assert key(longest).startswith("1:")
    assert key(longest + "x").startswith("1#")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({"a": "secret"}, "an object"),
        (["secret"], "a list"),
        (float("nan"), "a number that JSON does not have"),
        (float("inf"), "a number that JSON does not have"),
        (1 << 5_000, "a number of more than 4096 bits"),
    ],
)
def test_what_is_no_single_value_is_refused(value: Any, kind: str) -> None:
    """B182: the field is named, the value is not."""
    with pytest.raises(SubjectError, match=f"the field 'id' is {kind}") as caught:
        key(value)
    assert "secret" not in str(caught.value)
    assert sys.getsizeof(str(caught.value)) < 500


def test_a_missing_field_is_refused() -> None:
    """B182: null is a value, nothing is none."""
    with pytest.raises(SubjectError, match="the payload has no field 'id'"):
        subject_of({"ID": 1}, ("id",))
    assert subject_of({"id": None}, ("id",)).values == {"id": None}


@pytest.mark.parametrize(
    "text", ["a", "billing.reminder_failed", "app:errors/x-1", "_x", "a" * 200], ids=len
)
def test_keys_of_messages(text: str) -> None:
    assert is_message_key(text)


@pytest.mark.parametrize(
    "value",
    ["", "no such card", "a\n", "ä", "a" * 201, ".a", "Error: 4711", "a\x00", None, 7, ["a"]],
)
def test_texts_are_no_keys_of_messages(value: Any) -> None:
    """B184: an error's text must not go out as one."""
    assert not is_message_key(value)


def test_it_travels_with_a_record() -> None:
    visible = Visible(
        "acme", "app:job:x", CREATED, subject_of({"a": 1}, "a"), "app.failed", subject_of({}, ())
    )
    said = json.loads(json.dumps(visible.to_json()))
    assert Visible.from_json(said, "acme", "app:job:x", CREATED) == visible
    bare = Visible("acme", "app:job:x", CREATED)
    assert Visible.from_json(bare.to_json(), "acme", "app:job:x", CREATED) == bare


@pytest.mark.parametrize(
    "said",
    [
        {}, [], "x", {"failure": None, "run": None}, {"failure": 7, "message_key": "", "run": None},
        {"failure": None, "message_key": "an error's text", "run": None},
        {"failure": ["k" * 300, {}], "message_key": "", "run": None},
        {"failure": None, "message_key": "", "run": ["k", []]},
    ],
    ids=repr,
)  # fmt: skip
def test_what_another_has_written_is_looked_at(said: Any) -> None:
    """Design 1: it comes out of Redis."""
    with pytest.raises((TypeError, KeyError, ValueError)):
        Visible.from_json(said, "acme", "app:job:x", CREATED)
