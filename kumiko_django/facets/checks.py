"""System check: the settings of the facets can be loaded."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.core import checks
from django.core.checks import CheckMessage, register
from django.core.files.storage import InvalidStorageError, storages

from kumiko_django.conf import Settings, get_settings
from kumiko_django.exceptions import SettingsError
from kumiko_django.types.dotted import load_callable
from kumiko_django.types.setting_values import shown

_FACTORIES = ("FILES", "DERIVATIVES", "NOTIFY", "CONFIG", "SECRETS")


@register("kumiko")
def check_facets(app_configs: Sequence[Any] | None = None, **_: Any) -> list[CheckMessage]:
    """Every factory and function that the settings name is there."""
    try:
        settings = get_settings()
    except SettingsError:
        return []  # told by check_settings
    return [
        checks.Error(problem, hint="Correct KUMIKO in the settings module.", id="kumiko.E012")
        for problem in _problems(settings)
    ]


def _problems(settings: Settings) -> Iterator[str]:
    for key in _FACTORIES:
        value = getattr(settings, key.lower())
        if value is None or value is False or isinstance(value, Mapping):
            continue
        yield from _unusable(key, value, "of a FacetRequest")
    if isinstance(settings.derivatives, Mapping):
        for variant, function in settings.derivatives.items():
            yield from _unusable("DERIVATIVES", function, "of the bytes of a file", variant)
    if settings.time_zone is not None:
        yield from _unusable("TIME_ZONE", settings.time_zone, "of the tenant id")
    if settings.files is None:
        try:
            storages[settings.files_storage]
        except InvalidStorageError as error:
            yield f'KUMIKO["FILES_STORAGE"] = {settings.files_storage!r}: {error}'


def _unusable(key: str, value: object, takes: str, entry: str | None = None) -> Iterator[str]:
    try:
        function = load_callable(key, value, takes, entry=entry)
    except SettingsError as error:
        yield str(error)
        return
    if inspect.iscoroutinefunction(function):
        where = f'KUMIKO["{key}"]' if entry is None else f'KUMIKO["{key}"]["{entry}"]'
        yield f"{where} = {shown(value)} is an async def; nobody awaits it. Write it as a def."
