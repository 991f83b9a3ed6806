"""Checks of values of the ``KUMIKO`` setting, each with the fix in its message."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from kumiko_django.exceptions import SettingsError


def shown(value: object) -> str:
    """A wrong value in a message: what is short and plain as it is, functions by name.

    Of anything else only the type is told: a dict, or what was made of one, may hold a password.
    """
    if value is None or isinstance(value, str | int | float | UUID | dt.timedelta):
        return repr(value)
    name = getattr(value, "__qualname__", None)
    if isinstance(name, str):
        return f"{getattr(value, '__module__', '?')}.{name}"
    return f"something of the type {type(value).__name__}"


def callable_value(
    what: str, *, or_false: bool = False, or_mapping: bool = False
) -> Callable[[str, object], Any]:
    """Check for a callable ``what`` (the words say of what, and what it gives)."""
    others = ", False for no such facet" * or_false + ", a dict" * or_mapping

    def validate(key: str, value: object) -> object:
        fits = (or_false and value is False) or (or_mapping and isinstance(value, Mapping))
        if not (callable(value) or isinstance(value, str) or fits):
            raise SettingsError(
                f'KUMIKO["{key}"] must be a callable {what}, or the dotted path to one{others}, '
                f"not {shown(value)}."
            )
        return value

    return validate


def maker(*methods: str) -> Callable[[str, object], Any]:
    """Check for an object with these methods, or what makes one."""

    def validate(key: str, value: object) -> Any:
        has_all = all(hasattr(value, method) for method in methods)
        if not (isinstance(value, str) or callable(value) or has_all):
            raise SettingsError(
                f'KUMIKO["{key}"] must have the methods {", ".join(methods)}, be a callable that '
                f"makes such an object, or the dotted path to either, not "
                f"{shown(value)}."
            )
        return value

    return validate


def tenant_value(key: str, value: object) -> Any:
    """Check for what may stand in a tenant column.

    Raises:
        SettingsError: It is neither text, a whole number nor a UUID.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | UUID) or value == "":
        raise SettingsError(
            f'KUMIKO["{key}"] must be text, a whole number or a UUID, or None for NULL, not '
            f"{shown(value)}."
        )
    return value


def positive_int(key: str, value: object) -> int:
    """Check for a whole number of at least 1.

    Raises:
        SettingsError: It is something else.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise SettingsError(
            f'KUMIKO["{key}"] must be a whole number of at least 1, not {shown(value)}.'
        )
    return value


def choice(*allowed: str) -> Callable[[str, object], str]:
    """Check for one of some texts."""

    def validate(key: str, value: object) -> str:
        if value not in allowed:
            known = " or ".join(map(repr, allowed))
            raise SettingsError(f'KUMIKO["{key}"] must be {known}, not {shown(value)}.')
        return str(value)

    return validate


def true_or_false(key: str, value: object) -> bool:
    """Check for True or False.

    Raises:
        SettingsError: It is neither.
    """
    if not isinstance(value, bool):
        raise SettingsError(f'KUMIKO["{key}"] must be True or False, not {shown(value)}.')
    return value
