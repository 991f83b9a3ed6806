"""Names of jobs: ``<app-label>:job:<name>`` in kebab-case (B015, surroundings 3)."""

from __future__ import annotations

import re
from typing import Final

from kumiko_django.exceptions import DefinitionError

_SEGMENT: Final = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
MAX_NAME_LENGTH: Final = 200
"""Longest qualified name in characters; the history's column is this wide."""
WRAPPER_ROOM: Final = 11
"""Characters that the name of a wrapper has more than its job's (B061)."""


def kebab(text: str) -> str:
    """``text`` in kebab-case: ``SendReminders`` and ``send_reminders`` give ``send-reminders``."""
    return re.sub(r"[-_.]+", "-", _CAMEL.sub("-", text)).strip("-").lower()


def check_short_name(name: object, where: str) -> str:
    """``name`` if it is a job name without its app.

    Dots are refused, not converted: two names that differ only there would share one scheduler
    and one boot id (P40).

    Raises:
        DefinitionError: It is not kebab-case, or already qualified.
    """
    if not isinstance(name, str) or not name:
        raise DefinitionError(f"{where}: name must be a text such as 'send-reminders'.")
    if ":" in name:
        raise DefinitionError(
            f"{where}: name={name!r} is already qualified. Give the last part only "
            f"({name.rsplit(':', 1)[-1]!r}); the app's label is put before it."
        )
    if not _is_segment(name):
        suggestion = kebab(name.strip())
        raise DefinitionError(
            f"{where}: name={name!r} must be kebab-case: lower-case letters, digits and single "
            "dashes, beginning with a letter."
            + (f" Try {suggestion!r}." if _is_segment(suggestion) else "")
        )
    return name


def name_after(function_name: str, where: str) -> str:
    """The job name that a handler called ``function_name`` gets when it is given none.

    Raises:
        DefinitionError: It has no name that could be one, e.g. a lambda.
    """
    name = kebab(function_name)
    if not _is_segment(name):
        raise DefinitionError(
            f"{where}: the handler has no name of its own that could be the job's "
            f"(found {function_name!r}). Give name='...'."
        )
    return name


def qualify(
    app_label: object, name: str, where: str, longest: int = MAX_NAME_LENGTH, *, kind: str = "job"
) -> str:
    """The qualified name of ``name`` in the app ``app_label``: ``<app>:<kind>:<name>``.

    Raises:
        DefinitionError: The app's label has no kebab-case form, or the result is too long.
    """
    segment = kebab(app_label) if isinstance(app_label, str) else ""
    if not _is_segment(segment):
        raise DefinitionError(
            f"{where}: the app label {app_label!r} has no kebab-case form; give the AppConfig a "
            "label of lower-case letters, digits and underscores."
        )
    qualified = f"{segment}:{kind}:{name}"
    if len(qualified) > longest:
        raise DefinitionError(
            f"{where}: {qualified!r} is longer than {longest} characters; shorten name=."
        )
    return qualified


def is_qualified(name: str, *kinds: str) -> bool:
    """Whether ``name`` has the form ``<app-label>:job:<name>``, or that of other ``kinds``."""
    parts = name.split(":")
    of_kind = len(parts) == 3 and parts[1] in (kinds or ("job",))
    return of_kind and _is_segment(parts[0]) and _is_segment(parts[2])


def _is_segment(text: str) -> bool:
    # fullmatch: with match(), `$` would let a newline at the end pass.
    return _SEGMENT.fullmatch(text) is not None
