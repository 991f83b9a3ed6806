"""The trigger ``On``: which events start a job (B002, B115, B116, P10, P70)."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
from typing import Any

import pytest

from kumiko_django import DefinitionError, JobDefinition, On
from kumiko_django.types.jsonable import to_jsonable

pytestmark = pytest.mark.once


Loose: Any = On
"""The same for what type checkers see at once."""


class Status(enum.Enum):
    PAID = "paid"


def fits(where: dict[str, Any], payload: dict[str, Any]) -> bool:
    encoded = to_jsonable(payload)
    assert isinstance(encoded, dict)
    return On("order.placed", where=where).matches("order.placed", encoded)


def handler(payload: Any, ctx: Any) -> None: ...


def test_names() -> None:
    """B115: one name, several, or a list of them; exactly these."""
    for trigger in (On("a", "b"), On(["a", "b"]), On("a", ["b"])):
        assert trigger.events == ("a", "b")
        assert trigger == On("a", "b")
    assert On("a", "b").matches("b", {})
    for other in ("", "A", "a.b", "ab"):
        assert not On("a", "b").matches(other, {})


def test_it_is_a_trigger_like_others() -> None:
    """B002: the definition has exactly one, and is what it was made of."""
    trigger = On("order.placed", where={"n": 1})
    assert JobDefinition(handler=handler, trigger=trigger).trigger is trigger
    assert hash(trigger) == hash(On("order.placed", where={"n": 2})) != hash(On("other"))
    assert trigger != On("order.placed", where={"n": 2})
    assert "order.placed" in repr(trigger)
    with pytest.raises(TypeError):
        trigger.where["n"] = 2  # type: ignore[index]


@pytest.mark.parametrize(
    ("where", "payload"),
    [
        ({}, {}),
        ({}, {"n": 1}),
        ({"n": 1}, {"n": 1, "more": [1]}),
        ({"n": 1, "text": "a"}, {"n": 1, "text": "a"}),
        ({"n": None}, {"n": None}),
        ({"n": True}, {"n": True}),
        ({"n": 1.5}, {"n": 1.5}),
        ({"status": Status.PAID}, {"status": Status.PAID}),
        ({"status": Status.PAID}, {"status": "paid"}),
        ({"on": dt.date(2026, 3, 29)}, {"on": "2026-03-29"}),
        ({"amount": decimal.Decimal("1.50")}, {"amount": decimal.Decimal("1.50")}),
    ],
)
def test_what_fits(where: dict[str, Any], payload: dict[str, Any]) -> None:
    """B116: all of it is equal, as it travels; no condition is no condition."""
    assert fits(where, payload)


@pytest.mark.parametrize(
    ("where", "payload"),
    [
        ({"n": 1}, {}),
        ({"n": 1}, {"n": 2}),
        ({"n": 1}, {"n": "1"}),
        ({"n": "1"}, {"n": 1}),
        ({"n": 1}, {"n": True}),
        ({"n": True}, {"n": 1}),
        ({"n": 0}, {"n": False}),
        ({"n": False}, {"n": 0}),
        ({"n": False}, {"n": None}),
        ({"n": 1}, {"n": 1.0}),
        ({"n": None}, {}),
        ({"n": "a"}, {"n": ["a"]}),
        ({"n": "a"}, {"N": "a"}),
        ({"n": 1, "text": "a"}, {"n": 1, "text": "b"}),
    ],
)
def test_what_does_not(where: dict[str, Any], payload: dict[str, Any]) -> None:
    """B116, P70: type and value; Python alone would say that True is 1."""
    assert not fits(where, payload)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Loose(), r"names no event; write On\('order.placed'\)"),
        (lambda: Loose([]), "names no event"),
        (lambda: Loose(""), "a text such as 'order.placed', not ''"),
        (lambda: Loose(None), "a text such as"),
        (lambda: Loose(b"order"), "a text such as"),
        (lambda: Loose([["nested"]]), "a text such as"),
        (lambda: Loose(" order"), "space at an end"),
        (lambda: Loose("or\nder"), "control characters"),
        (lambda: Loose("x" * 201), "longer than 200"),
        (lambda: Loose("a", "a"), "'a' is given twice; drop one"),
        (lambda: Loose("a", where=[("n", 1)]), "where must be a mapping"),
        (lambda: Loose("a", where={1: 1}), "where has the field 1"),
        (
            lambda: Loose("a", where={"_tenantId": "acme"}),
            "no payload has keys that begin with '_'",
        ),
        (lambda: Loose("a", where={"n": {"deep": 1}}), "nested values never match. Compare a top-"),
        (lambda: Loose("a", where={"n": [1]}), "nested values never match"),
        (lambda: Loose("a", where={"n": float("nan")}), r"where\['n'\] is nan"),
        (lambda: Loose("a", where={"n": object()}), r"where\['n'\]"),
        (lambda: JobDefinition(handler=handler, trigger=Loose), r"or On\('event'\)"),
    ],
)
def test_what_is_refused(make: Any, message: str) -> None:
    """P10, B116: a condition that could never be met is told when it is written."""
    with pytest.raises(DefinitionError, match=message):
        make()
