"""Finding the host's jobs: every installed app's ``jobs.py`` is imported when Django is ready."""

from __future__ import annotations

from django.utils.module_loading import autodiscover_modules

from kumiko_django.definitions.registry import registry

JOBS_MODULE = "jobs"


def discover() -> None:
    """Import the ``jobs`` module of every installed app, which registers what it defines.

    An app without one is passed over; an error inside one is raised, since a job that silently
    does not exist is worse than a process that does not start.

    Raises:
        DefinitionError: The schema of a job names something that no module has defined.
    """
    autodiscover_modules(JOBS_MODULE)
    for definition in registry.all():
        if definition.payload_schema is not None:
            definition.payload_schema.complete()
