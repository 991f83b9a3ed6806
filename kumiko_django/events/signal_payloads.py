"""What a Django signal says, as the payload of an event: for bindings without a function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.db.models import Model
from django.db.models.signals import ModelSignal
from django.dispatch import Signal

from kumiko_django.exceptions import PayloadError
from kumiko_django.types.jsonable import JSON, to_jsonable

_OF_MODEL_SIGNALS: Final = ("created", "action", "reverse", "pk_set", "update_fields")


def default_payload(signal: Signal, arguments: Mapping[str, Any]) -> dict[str, JSON]:
    """The arguments of a signal that can travel, model instances by their primary key.

    A model's signal gives ``model`` (its label), ``pk``, and ``created``, ``action``, ``reverse``,
    ``pk_set`` and ``update_fields`` where Django sends them and they are not None. What has no JSON
    form is left out: the code that sends the signal knows nothing of jobs and must not fail.
    """
    instance = arguments.get("instance")
    if isinstance(signal, ModelSignal) and isinstance(instance, Model):
        given = {"model": instance._meta.label_lower, "pk": instance.pk}
        given |= {name: arguments.get(name) for name in _OF_MODEL_SIGNALS}
        given = {name: value for name, value in given.items() if name == "pk" or value is not None}
    else:
        hidden = ("signal", "sender")
        given = {name: value for name, value in arguments.items() if name not in hidden}
    payload: dict[str, JSON] = {}
    for name, value in given.items():
        try:
            if not name.startswith("_"):
                payload[name] = to_jsonable(_plain(value))
        except PayloadError:
            continue
    return payload


def _plain(value: Any) -> Any:
    if isinstance(value, Model):
        return value.pk
    if isinstance(value, set | frozenset):
        return sorted((to_jsonable(_plain(item)) for item in value), key=_order)
    return value


def _order(item: JSON) -> tuple[str, Any]:
    """Numbers as numbers; what cannot be compared, such as a number and a text, by its type."""
    return type(item).__name__, item if isinstance(item, int | float | str) else str(item)
