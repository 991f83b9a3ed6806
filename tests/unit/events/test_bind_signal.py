"""What ``bind_signal`` refuses, by name and with the fix (P10)."""

from __future__ import annotations

from typing import Any

import pytest
from django.db.models.signals import post_save
from django.dispatch import Signal

from kumiko_django import DefinitionError, bind_signal

pytestmark = pytest.mark.once


def by_position(instance: Any, /) -> dict[str, Any]:
    return {}


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("order.placed", post_save), {}, r"bind_signal\(post_save, 'order.saved', sender=Order\)"),
        ((Signal, "e"), {}, "is no signal"),
        ((Signal(), ""), {}, "bind_signal: The name of an event is a text"),
        ((Signal(), " e"), {}, "space at an end"),
        ((Signal(), "shop:write:order"), {}, "'shop:write:order' is that of a handler"),
        ((Signal(), "e"), {"payload": {"n": 1}}, "payload must be a function of the signal's"),
        ((Signal(), "e"), {"when": True}, "when must be a function"),
        ((Signal(), "e"), {"payload": by_position}, "by_position takes some by position only"),
    ],
)
def test_what_is_refused(arguments: tuple[Any, Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        bind_signal(*arguments, **options)
