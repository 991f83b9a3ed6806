"""What ``bind_signal`` refuses, by name and with the fix (P10)."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.core.checks.model_checks import check_lazy_references
from django.db.models.signals import m2m_changed, post_delete, post_save
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
        (
            (post_save, "e"),
            {"when": lambda instance, foo: True},
            r"when= of the event e \(.*<lambda>\) asks for 'foo', and the signal has created, inst",
        ),
        ((m2m_changed, "e"), {"payload": lambda created, **rest: {}}, "payload= .* for 'created'"),
        ((post_delete, "e"), {"tenant_id": lambda raw: "acme"}, "tenant_id= .* asks for 'raw'"),
    ],
)
def test_what_is_refused(arguments: tuple[Any, Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        bind_signal(*arguments, **options)


def test_a_parameter_with_a_default_may_be_there_or_not() -> None:
    bind_signal(post_save, "e", when=lambda instance, foo=None: True).disconnect()


def test_what_only_a_sending_can_tell() -> None:
    """Which arguments a signal of the project has: the event, the option and what there is."""
    signal = Signal()
    binding = bind_signal(signal, "event.unheard", when=lambda foo: True)
    call = binding._when
    assert call is not None
    with pytest.raises(DefinitionError, match=r"when= of the event event.unheard .* has bar, foa"):
        call({"foa": 1, "bar": 2})
    assert call({"foo": 1, "bar": 2}) is True
    binding.disconnect()


def test_a_misspelt_sender_is_blamed_once() -> None:
    """By ``manage.py check``, as a connect of ours; not also as a disconnect."""
    known = {key: list(waiting) for key, waiting in apps._pending_operations.items()}
    try:
        bind_signal(post_save, "e", sender="testapp.Ordr", tenant_id="acme")
        told = [error for error in check_lazy_references(None) if "testapp.ordr" in error.msg]
        assert [error.id for error in told] == ["signals.E001"]
        bind_signal(post_save, "e", sender="testapp.Ordr", tenant_id="acme")
        assert len(apps._pending_operations["testapp", "ordr"]) == 3, "the last one counts"
    finally:
        apps._pending_operations.clear()
        apps._pending_operations.update(known)
