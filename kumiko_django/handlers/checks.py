"""System checks: events that only a handler sends, and the setting that gives roles."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, register

from kumiko_django.conf import get_settings
from kumiko_django.definitions import names
from kumiko_django.definitions.job import JobDefinition
from kumiko_django.definitions.registry import registry
from kumiko_django.definitions.triggers import On
from kumiko_django.exceptions import SettingsError
from kumiko_django.handlers.definition import KINDS
from kumiko_django.handlers.registry import handlers
from kumiko_django.types.dotted import load_callable


@register("kumiko")
def check_events_of_handlers(
    app_configs: Sequence[Any] | None = None, **_: Any
) -> list[CheckMessage]:
    """Jobs that listen to a handler listen to one that there is (surroundings 3)."""
    return [found for definition in registry.all() for found in _check_trigger(definition)]


def _check_trigger(definition: JobDefinition) -> Iterator[CheckMessage]:
    events = definition.trigger.events if isinstance(definition.trigger, On) else ()
    for event in events:
        if not names.is_qualified(event, *KINDS):
            continue  # the name of an event, which need not be declared
        handler = handlers.find(event)
        if handler is not None and handler.kind == "write":
            continue
        problem = (
            "which is no write handler"
            if handler is None
            else "which is a query, and queries send no events"
        )
        yield Error(
            f"{definition.qualified_name} listens to {event!r}, {problem}.",
            hint=handlers.nearest(event, "write")
            or "Is its app in INSTALLED_APPS and the handler in its handlers.py?",
            id="kumiko.E020",
        )


@register("kumiko")
def check_roles(app_configs: Sequence[Any] | None = None, **_: Any) -> list[CheckMessage]:
    """``ROLES`` can be asked."""
    try:
        source = get_settings().roles
    except SettingsError:
        return []  # told by check_settings
    if source is None:
        return []
    try:
        function = load_callable("ROLES", source, "of a user and a tenant id", arguments=2)
        problem = ""
    except SettingsError as error:
        function, problem = None, str(error)
    if inspect.iscoroutinefunction(function):
        problem = f'KUMIKO["ROLES"] = {source!r} is an async def; nobody awaits it.'
    hint = "Give a def of a user and a tenant id, or its dotted path."
    return [Error(problem, hint=hint, id="kumiko.E021")] if problem else []
