"""What a signal says, where a binding has no function for it (B117)."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.contrib.auth.signals import user_logged_in
from django.db.models.signals import m2m_changed, post_delete, post_save
from django.dispatch import Signal
from django.http import HttpRequest

from kumiko_django.events.signal_payloads import default_payload
from tests.app.models import Order

pytestmark = pytest.mark.once

ORDER = Order(pk=5, tenant_id="acme", number="1")


@pytest.mark.parametrize(
    ("signal", "arguments", "payload"),
    [
        (
            post_save,
            {"instance": ORDER, "created": True, "raw": False, "using": "x", "update_fields": None},
            {"model": "testapp.order", "pk": 5, "created": True},
        ),
        (
            post_save,
            {"instance": ORDER, "created": False, "update_fields": frozenset({"b", "a"})},
            {"model": "testapp.order", "pk": 5, "created": False, "update_fields": ["a", "b"]},
        ),
        (
            post_delete,
            {"instance": ORDER, "using": "default", "origin": ORDER},
            {"model": "testapp.order", "pk": 5},
        ),
        (post_save, {"instance": Order()}, {"model": "testapp.order", "pk": None}),
        (
            m2m_changed,
            {
                "instance": ORDER,
                "action": "post_add",
                "reverse": False,
                "model": Group,
                "pk_set": {3, 1},
                "using": "default",
            },
            {
                "model": "testapp.order",
                "pk": 5,
                "action": "post_add",
                "reverse": False,
                "pk_set": [1, 3],
            },
        ),
    ],
)
def test_of_a_model(signal: Signal, arguments: dict[str, Any], payload: dict[str, Any]) -> None:
    """B116, B117: the row by its key, and what conditions may ask for."""
    assert default_payload(signal, {"signal": signal, "sender": Order, **arguments}) == payload


def test_of_any_other_signal() -> None:
    """B117: what can travel does; the rest is left out and breaks nobody's login."""
    arguments = {"signal": user_logged_in, "sender": Group, "request": HttpRequest()}
    assert default_payload(user_logged_in, {**arguments, "user": ORDER}) == {"user": 5}
    ids = {uuid.UUID(int=2), uuid.UUID(int=1)}
    given = {"a": [1], "_b": 2, "ids": ids, "mixed": {1, "a"}, "call": print}
    assert default_payload(Signal(), given) == {
        "a": [1],
        "ids": [str(uuid.UUID(int=1)), str(uuid.UUID(int=2))],
        "mixed": [1, "a"],
    }
    assert default_payload(Signal(), {"unordered": {object(), object()}}) == {}
