"""Settings that are a callable, as the object itself or as the dotted path to it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from django.utils.module_loading import import_string

from kumiko_django.exceptions import SettingsError
from kumiko_django.types.setting_values import shown


def load_callable(
    key: str, value: object, takes: str, *, arguments: int = 1, entry: str | None = None
) -> Callable[..., Any]:
    """What ``KUMIKO[key]`` stands for, imported where it is a dotted path.

    Args:
        key: The setting, for messages.
        value: A callable or a dotted path to one.
        takes: What it is called with, in words, for messages.
        arguments: With how many positional arguments it is called.
        entry: Whose value in the setting it is, where that is a dict.

    Raises:
        SettingsError: It cannot be imported, or cannot be called so.
    """
    where = f'KUMIKO["{key}"]' if entry is None else f'KUMIKO["{key}"]["{entry}"]'
    wanted = f"must be a callable {takes}, or the dotted path to one"
    try:
        found: Any = import_string(value) if isinstance(value, str) else value
    except ImportError as error:
        raise SettingsError(
            f"{where} = {value!r} cannot be imported: {error}. It {wanted}."
        ) from error
    if not callable(found):
        raise SettingsError(f"{where} {wanted}; {shown(found)} is neither.")
    try:
        inspect.signature(found).bind(*range(arguments))
    except TypeError as error:
        raise SettingsError(
            f"{where} = {shown(value)} must be callable {takes}: {error}."
        ) from None
    except ValueError:  # a builtin without a signature: the call itself will tell
        pass
    function: Callable[..., Any] = found
    return function
