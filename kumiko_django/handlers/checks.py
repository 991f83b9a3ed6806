"""System checks: events that only a handler sends, and the setting that gives roles."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import apps
from django.core import checks
from django.core.checks import CheckMessage, Error, register

from kumiko_django.conf import get_settings
from kumiko_django.definitions import names
from kumiko_django.definitions.job import JobDefinition
from kumiko_django.definitions.registry import registry
from kumiko_django.definitions.triggers import On
from kumiko_django.exceptions import SettingsError
from kumiko_django.handlers.definition import KINDS, HandlerDefinition
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
def check_app_labels(app_configs: Sequence[Any] | None = None, **_: Any) -> list[CheckMessage]:
    """Jobs and handlers belong to apps that there are; a label may have been kept from a former."""
    defined: tuple[JobDefinition | HandlerDefinition, ...] = (*registry.all(), *handlers.all())
    labels = {names.kebab(config.label): config.label for config in apps.get_app_configs()}
    return [
        checks.Warning(
            f"{definition.qualified_name} belongs to the app {definition.app_label!r}, which is "
            "not installed.",
            hint=_nearest_label(definition.app_label or "", list(labels.values())),
            id="kumiko.W020",
        )
        for definition in defined
        if names.kebab(definition.app_label or "") not in labels
    ]


def _nearest_label(label: str, labels: list[str]) -> str:
    near = difflib.get_close_matches(label, labels, n=1)
    meant = f"Did you mean app_label={near[0]!r}? " if near else ""
    return f"{meant}Silence it where a name is to stay as it was under a former app."


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
