"""All job definitions of the process, by qualified name and alias."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import threading
from collections.abc import Iterator

from django.apps import apps
from django.core.exceptions import AppRegistryNotReady

from kumiko_django.definitions import names
from kumiko_django.definitions.job import Handler, JobDefinition
from kumiko_django.exceptions import DefinitionError, UnknownJobError


class Registry:
    """Definitions by name. Filled while Django starts, frozen at first use."""

    def __init__(self) -> None:
        self._by_name: dict[str, JobDefinition] = {}
        self._by_alias: dict[str, JobDefinition] = {}
        self._by_handler: dict[Handler, JobDefinition] = {}
        self._frozen = False
        self._lock = threading.RLock()

    def register(self, definition: JobDefinition) -> JobDefinition:
        """Add a definition and give it back with its app filled in.

        Raises:
            DefinitionError: Its name or an alias is taken, its app cannot be told, or the registry
                is already in use.
        """
        with self._lock:
            if self._frozen:
                raise DefinitionError(
                    f"job {definition.module}.{definition.name} comes too late: jobs have already "
                    "been dispatched or run. Register it in a jobs.py module or in "
                    "AppConfig.ready()."
                )
            definition = _with_app(definition)
            self._refuse_collisions(definition)
            self._by_name[definition.qualified_name] = definition
            for alias in definition.qualified_aliases:
                self._by_alias[alias] = definition
            self._by_handler[definition.handler] = definition
            return definition

    def get(self, name: str) -> JobDefinition:
        """The definition called ``name``, or that was called so before. Freezes the registry.

        Raises:
            UnknownJobError: There is none (B038).
        """
        self.freeze()
        definition = self._by_name.get(name) or self._by_alias.get(name)
        if definition is None:
            raise UnknownJobError(self._unknown(name))
        return definition

    def for_handler(self, handler: Handler) -> JobDefinition:
        """The definition whose handler is ``handler``. Freezes the registry.

        Raises:
            UnknownJobError: The function is no registered job.
        """
        self.freeze()
        try:
            return self._by_handler[handler]
        except (KeyError, TypeError):
            raise UnknownJobError(
                f"{handler!r} is not a registered job. Decorate it with @job in the jobs.py of an "
                "installed app, or give the name of one."
            ) from None

    def all(self) -> tuple[JobDefinition, ...]:
        """Every definition, in the order of registration (B115)."""
        return tuple(self._by_name.values())

    def freeze(self) -> None:
        """Refuse later registrations: what has been looked up must not change any more."""
        self._frozen = True

    @contextlib.contextmanager
    def isolated(self) -> Iterator[Registry]:
        """For tests: within the block jobs can be registered; afterwards they are forgotten."""
        with self._lock:
            saved = (
                dict(self._by_name),
                dict(self._by_alias),
                dict(self._by_handler),
                self._frozen,
            )
            self._frozen = False
        try:
            yield self
        finally:
            with self._lock:
                self._by_name, self._by_alias, self._by_handler, self._frozen = saved

    def _refuse_collisions(self, definition: JobDefinition) -> None:
        wanted = definition.qualified_name
        for name in (wanted, *definition.qualified_aliases):
            other = self._by_name.get(name) or self._by_alias.get(name)
            if other is not None:
                what = "name" if name == wanted else "alias"
                raise DefinitionError(
                    f"The {what} {name!r} of {definition.module} is already taken by the job of "
                    f"{other.module} ({other.qualified_name}). Rename one with name=, or drop the "
                    "alias."
                )
        if wanted in definition.qualified_aliases:
            raise DefinitionError(f"The alias {wanted!r} is the job's own name; drop it.")

    def _unknown(self, name: object) -> str:
        known = [*self._by_name, *self._by_alias]
        near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.6)
        if near:
            return f"No job is called {name!r}. Did you mean {near[0]!r}?"
        if isinstance(name, str) and not names.is_qualified(name):
            return (
                f"No job is called {name!r}. Give the qualified name, e.g. "
                "'billing:job:send-reminders'."
            )
        return (
            f"No job is called {name!r}. Is its app in INSTALLED_APPS and the job in its jobs.py?"
        )


def _with_app(definition: JobDefinition) -> JobDefinition:
    if definition.app_label is not None:
        return definition
    try:
        config = apps.get_containing_app_config(definition.module)
    except AppRegistryNotReady:
        raise DefinitionError(
            f"job {definition.module}.{definition.name} is imported before Django has loaded its "
            "apps. Put jobs into a jobs.py module, which is found by itself, and do not import it "
            "from the app's __init__.py or apps.py."
        ) from None
    if config is None:
        raise DefinitionError(
            f"job {definition.module}.{definition.name} is in no installed app. Add the app to "
            "INSTALLED_APPS or give app_label=."
        )
    return dataclasses.replace(definition, app_label=config.label)


registry = Registry()
"""The registry of this process."""
