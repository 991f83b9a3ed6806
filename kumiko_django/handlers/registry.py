"""All handlers of the process, by qualified name."""

from __future__ import annotations

import contextlib
import difflib
import threading
from collections.abc import Iterator

from django.apps import apps
from django.core.exceptions import AppRegistryNotReady

from kumiko_django.definitions import names
from kumiko_django.definitions.handler import place
from kumiko_django.exceptions import DefinitionError, KumikoError, UnknownHandlerError
from kumiko_django.handlers.definition import KINDS, HandlerDefinition, Kind


class HandlerRegistry:
    """Definitions by name. Filled while Django starts, frozen at first use."""

    def __init__(self) -> None:
        self._by_name: dict[str, HandlerDefinition] = {}
        self._frozen = False
        self._lock = threading.RLock()

    def register(self, definition: HandlerDefinition) -> HandlerDefinition:
        """Add a definition and give it back; its app is filled in where it names none.

        Raises:
            DefinitionError: Its name is taken, its app cannot be told, or it comes too late.
        """
        with self._lock:
            if self._frozen:
                raise DefinitionError(
                    f"{definition.where} comes too late: handlers have already been called. Put it "
                    "into a handlers.py module, which is imported when Django starts."
                )
            if definition.app_label is None:
                definition.assign_app(_app_of(definition))
            name = definition.qualified_name
            other = self._by_name.get(name)
            if other is not None:
                raise DefinitionError(
                    f"The name {name!r} of {definition.where} is already taken by "
                    f"{'.'.join(place(other.function))}. Rename one."
                )
            self._by_name[name] = definition
            return definition

    def get(self, name: object, kind: Kind) -> HandlerDefinition:
        """The handler of a kind with this qualified name. Freezes the registry.

        Raises:
            UnknownHandlerError: There is none (B166).
            KumikoError: Django is not set up yet.
        """
        self.freeze()
        definition = self._by_name.get(name) if isinstance(name, str) else None
        if definition is None or definition.kind != kind:
            raise UnknownHandlerError(self._unknown(name, kind, definition))
        return definition

    def find(self, name: str) -> HandlerDefinition | None:
        """The handler with this name, or None; for checks."""
        return self._by_name.get(name)

    def all(self) -> tuple[HandlerDefinition, ...]:
        """Every handler, in the order of registration."""
        return tuple(self._by_name.values())

    def freeze(self) -> None:
        """Refuse later registrations.

        Raises:
            KumikoError: Django is not set up yet.
        """
        if not (self._frozen or apps.ready):
            raise KumikoError(
                "Handlers are called before Django is set up. In a script, call django.setup() "
                "first; do not call them while modules are imported, nor in AppConfig.ready()."
            )
        self._frozen = True

    @contextlib.contextmanager
    def isolated(self) -> Iterator[HandlerRegistry]:
        """For tests: within the block handlers can be registered; afterwards they are forgotten."""
        with self._lock:
            saved = (dict(self._by_name), self._frozen)
            self._frozen = False
        try:
            yield self
        finally:
            with self._lock:
                self._by_name, self._frozen = saved

    def nearest(self, name: object, kind: Kind) -> str:
        """A sentence that helps whoever has misspelt ``name``; may be empty."""
        known = [one.qualified_name for one in self.all() if one.kind == kind]
        near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.6)
        return f"Did you mean {near[0]!r}?" if near else ""

    def _unknown(self, name: object, kind: Kind, other: HandlerDefinition | None) -> str:
        if other is not None:
            return f"{name!r} is a {other.kind} handler; call it with {other.kind}()."
        hint = self.nearest(name, kind)
        if not hint and not (isinstance(name, str) and names.is_qualified(name, *KINDS)):
            hint = f"Give the qualified name, e.g. 'shop:{kind}:create-order'."
        return (
            f"No {kind} handler is called {name!r}. "
            f"{hint or 'Is its app in INSTALLED_APPS and the handler in its handlers.py?'}"
        )


def _app_of(definition: HandlerDefinition) -> str:
    try:
        config = apps.get_containing_app_config(place(definition.function)[0])
    except AppRegistryNotReady:
        raise DefinitionError(
            f"{definition.where} is imported before Django has loaded its apps. Put handlers into "
            "a handlers.py module, which is found by itself."
        ) from None
    if config is None:
        raise DefinitionError(
            f"{definition.where} is in no installed app. Add the app to INSTALLED_APPS or give "
            "app_label=."
        )
    return config.label


handlers = HandlerRegistry()
"""The registry of this process."""
