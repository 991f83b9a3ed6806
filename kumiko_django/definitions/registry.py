"""All job definitions of the process, by qualified name and alias."""

from __future__ import annotations

import contextlib
import difflib
import threading
from collections.abc import Iterator

from django.apps import apps
from django.core.exceptions import AppRegistryNotReady

from kumiko_django.definitions import names
from kumiko_django.definitions.handler import place
from kumiko_django.definitions.job import Handler, JobDefinition
from kumiko_django.exceptions import DefinitionError, KumikoError, UnknownJobError


class Registry:
    """Definitions by name. Filled while Django starts, frozen at first use."""

    def __init__(self) -> None:
        self._by_name: dict[str, JobDefinition] = {}
        self._by_alias: dict[str, JobDefinition] = {}
        self._by_handler: dict[Handler, list[JobDefinition]] = {}
        self._frozen = False
        self._lock = threading.RLock()

    def register(self, definition: JobDefinition) -> JobDefinition:
        """Add a definition and give it back; its app is filled in where it names none.

        Raises:
            DefinitionError: Its name or an alias is taken, its app cannot be told, or the registry
                is already in use.
        """
        if not isinstance(definition, JobDefinition):
            raise DefinitionError(
                f"registry.register() takes a JobDefinition, not {definition!r}. Write "
                "registry.register(JobDefinition(handler=...)), or decorate a function with @job."
            )
        with self._lock:
            if self._frozen:
                raise DefinitionError(
                    f"job {_origin(definition)} comes too late: jobs have already "
                    "been looked up, dispatched or run. Register it in a jobs.py module or in "
                    "AppConfig.ready()."
                )
            if definition.app_label is None:
                definition.assign_app(_app_of(definition))
            self._refuse_collisions(definition)
            self._by_name[definition.qualified_name] = definition
            for alias in definition.qualified_aliases:
                self._by_alias[alias] = definition
            if _is_hashable(definition.handler):
                self._by_handler.setdefault(definition.handler, []).append(definition)
            return definition

    def get(self, name: str) -> JobDefinition:
        """The definition called ``name``, or that was called so before. Freezes the registry.

        Raises:
            UnknownJobError: There is none (B038).
            KumikoError: Django is not set up yet.
        """
        self.freeze()
        definition = self._by_name.get(name) or self._by_alias.get(name)
        if definition is None:
            raise UnknownJobError(self._unknown(name))
        return definition

    def for_handler(self, handler: Handler) -> JobDefinition:
        """The definition whose handler is ``handler``. Freezes the registry.

        Raises:
            UnknownJobError: The function is no registered job, or is the handler of several.
        """
        self.freeze()
        found = self._by_handler.get(handler, []) if _is_hashable(handler) else []
        if not found:
            raise UnknownJobError(
                f"{handler!r} is not a registered job. Decorate it with @job in the jobs.py of an "
                "installed app, or give the name of one."
            )
        if len(found) > 1:
            names_of_all = ", ".join(definition.qualified_name for definition in found)
            raise UnknownJobError(
                f"{_origin(found[0])} is the handler of several jobs ({names_of_all}). Give the "
                "name of the one that you mean."
            )
        return found[0]

    def all(self) -> tuple[JobDefinition, ...]:
        """Every definition, in the order of registration (B115)."""
        return tuple(self._by_name.values())

    def freeze(self) -> None:
        """Refuse later registrations: what has been looked up must not change any more.

        Raises:
            KumikoError: Django is not set up yet. Frozen now, the registry would refuse jobs that
                have done nothing wrong but to be found later.
        """
        if not (self._frozen or apps.ready):
            raise KumikoError(
                "Jobs are looked up or dispatched before Django is set up. In a script, call "
                "django.setup() first; do not dispatch while modules are imported, nor in "
                "AppConfig.ready()."
            )
        self._frozen = True

    @contextlib.contextmanager
    def isolated(self) -> Iterator[Registry]:
        """For tests: within the block jobs can be registered; afterwards they are forgotten."""
        with self._lock:
            saved = (
                dict(self._by_name),
                dict(self._by_alias),
                {handler: list(found) for handler, found in self._by_handler.items()},
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
            if other is definition:
                raise DefinitionError(f"job {_origin(definition)} ({name}) is registered already.")
            if other is not None:
                what = "name" if name == wanted else "alias"
                raise DefinitionError(
                    f"The {what} {name!r} of {_origin(definition)} is already taken by the job of "
                    f"{_origin(other)} ({other.qualified_name}). Rename one with name=, or drop "
                    "the alias."
                )
        if wanted in definition.qualified_aliases:
            raise DefinitionError(
                f"The alias {wanted!r} of {_origin(definition)} is the job's own name; drop it."
            )

    def _unknown(self, name: object) -> str:
        known = [*self._by_name, *self._by_alias]
        near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.6)
        if near:
            return f"No job is called {name!r}. Did you mean {near[0]!r}?"
        if isinstance(name, str) and not names.is_qualified(name):
            example = next(iter(self._by_name), "<app>:job:<name>")
            return f"No job is called {name!r}. Give the qualified name, e.g. {example!r}."
        return (
            f"No job is called {name!r}. Is its app in INSTALLED_APPS and the job in its jobs.py?"
        )


def _app_of(definition: JobDefinition) -> str:
    try:
        config = apps.get_containing_app_config(definition.module)
    except AppRegistryNotReady:
        raise DefinitionError(
            f"job {_origin(definition)} is imported before Django has loaded its "
            "apps. Put jobs into a jobs.py module, which is found by itself, and do not import it "
            "from the app's __init__.py or apps.py."
        ) from None
    if config is None:
        raise DefinitionError(
            f"job {_origin(definition)} is in no installed app. Add the app to "
            "INSTALLED_APPS or give app_label=."
        )
    return config.label


def _origin(definition: JobDefinition) -> str:
    return ".".join(place(definition.handler))


def _is_hashable(handler: object) -> bool:
    try:
        hash(handler)
    except TypeError:  # e.g. an instance of a dataclass; it is dispatched by name or definition
        return False
    return True


registry = Registry()
"""The registry of this process."""
