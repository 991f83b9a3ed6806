"""``aliases``: the names under which a job was known before."""

from __future__ import annotations

from collections.abc import Iterable

from kumiko_django.definitions import names
from kumiko_django.exceptions import DefinitionError


def check_aliases(aliases: object, where: str) -> tuple[str, ...]:
    """``aliases=`` as a tuple of names.

    Raises:
        DefinitionError: It is no list of names, or has one twice.
    """
    if isinstance(aliases, str):
        raise DefinitionError(f"{where}: aliases must be a list of names; write [{aliases!r}].")
    if not isinstance(aliases, Iterable):
        raise DefinitionError(f"{where}: aliases must be a list of names, not {aliases!r}.")
    checked: list[str] = []
    for alias in aliases:
        checked.append(_check_alias(alias, where))
        if checked.count(checked[-1]) > 1:
            raise DefinitionError(f"{where}: alias {alias!r} is given twice; drop one.")
    return tuple(checked)


def _check_alias(alias: object, where: str) -> str:
    if not isinstance(alias, str) or ":" not in alias:
        return names.check_short_name(alias, f"{where}, aliases")
    if not names.is_qualified(alias) or len(alias) > names.MAX_NAME_LENGTH:
        raise DefinitionError(
            f"{where}: alias {alias!r} is neither a short name nor of the form "
            f"'<app-label>:job:<name>' with at most {names.MAX_NAME_LENGTH} characters."
        )
    return alias
