"""Finding the host's handlers: every installed app's ``handlers.py``, when Django is ready."""

from __future__ import annotations

from django.utils.module_loading import autodiscover_modules

from kumiko_django.handlers.registry import handlers

HANDLERS_MODULE = "handlers"


def discover() -> None:
    """Import the ``handlers`` module of every installed app; what is in ``jobs.py`` counts, too.

    Raises:
        DefinitionError: The schema of a handler names something that no module has defined.
    """
    autodiscover_modules(HANDLERS_MODULE)
    for definition in handlers.all():
        if definition.payload_schema is not None:
            definition.payload_schema.complete()
