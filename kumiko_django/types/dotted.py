"""Settings that are a callable, as the object itself or as the dotted path to it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from django.utils.module_loading import import_string

from kumiko_django.exceptions import SettingsError


def load_callable(key: str, value: object, takes: str, *, arguments: int = 1) -> Callable[..., Any]:
    """What ``KUMIKO[key]`` stands for, imported where it is a dotted path.

    Args:
        key: The setting, for messages.
        value: A callable or a dotted path to one.
        takes: What it is called with, in words, for messages.
        arguments: With how many positional arguments it is called.

    Raises:
        SettingsError: It cannot be imported, or cannot be called so.
    """
    found: Any = load(key, value)
    if not callable(found):
        raise SettingsError(
            f'KUMIKO["{key}"] must be a callable {takes}, or the dotted path to one; '
            f"{found!r} is neither."
        )
    try:
        inspect.signature(found).bind(*range(arguments))
    except TypeError as error:
        raise SettingsError(
            f'KUMIKO["{key}"] = {value!r} must be callable {takes}: {error}.'
        ) from None
    except ValueError:  # a builtin without a signature: the call itself will tell
        pass
    function: Callable[..., Any] = found
    return function


def load(key: str, value: object) -> Any:
    """The object behind a dotted path; anything else as it is.

    Raises:
        SettingsError: It cannot be imported.
    """
    if not isinstance(value, str):
        return value
    try:
        return import_string(value)
    except ImportError as error:
        raise SettingsError(f'KUMIKO["{key}"] = {value!r} cannot be imported: {error}.') from error
