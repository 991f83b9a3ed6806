"""Which arguments signals have, for functions that name those they want."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import signals
from django.dispatch import Signal

from kumiko_django.definitions.handler import place
from kumiko_django.exceptions import DefinitionError

_OF_ALL: Final = ("signal", "sender")
_OF_SAVES: Final = ("instance", "raw", "using", "update_fields")
_OF_DELETES: Final = ("instance", "using", "origin")
_OF_DJANGO: Final[dict[Signal, tuple[str, ...]]] = {
    signals.pre_init: ("args", "kwargs"),
    signals.post_init: ("instance",),
    signals.pre_save: _OF_SAVES,
    signals.post_save: (*_OF_SAVES, "created"),
    signals.pre_delete: _OF_DELETES,
    signals.post_delete: _OF_DELETES,
    signals.m2m_changed: ("instance", "action", "reverse", "model", "pk_set", "using"),
}
"""By Django's documentation of its model signals. Of others only a sending tells."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a function names.

    Attributes:
        names: Its parameters; None if it takes whatever there is.
        required: Those of them that have no default.
    """

    names: tuple[str, ...] | None
    required: tuple[str, ...] = ()


def wanted_by(function: Callable[..., Any], option: str) -> Wanted:
    """What a function that is given as ``option`` of ``bind_signal`` names.

    Raises:
        DefinitionError: It takes some by position only.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # a builtin without a signature: the call itself will tell
        return Wanted(None)
    kinds = {parameter.kind for parameter in parameters}
    if inspect.Parameter.POSITIONAL_ONLY in kinds:
        raise DefinitionError(
            f"bind_signal: {option} is called with the signal's arguments by their names; "
            f"{place(function)[1]} takes some by position only."
        )
    named = [
        parameter
        for parameter in parameters
        if parameter.kind not in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    ]
    takes_all = inspect.Parameter.VAR_KEYWORD in kinds
    return Wanted(
        None if takes_all else tuple(parameter.name for parameter in named),
        tuple(one.name for one in named if one.default is inspect.Parameter.empty),
    )


def refuse_unknown(wanted: Wanted, signal: Signal, where: str) -> None:
    """Refuse a function that asks one of Django's model signals for what it has not.

    Raises:
        DefinitionError: It does.
    """
    known = _OF_DJANGO.get(signal)
    if known is not None:
        refuse_missing(wanted, (*_OF_ALL, *known), where)


def refuse_missing(wanted: Wanted, there: Iterable[str], where: str) -> None:
    """Refuse a function that asks for what is not there; ``where`` begins the message.

    Raises:
        DefinitionError: It does.
    """
    arguments = tuple(there)
    missing = [name for name in wanted.required if name not in arguments]
    if missing:
        raise DefinitionError(
            f"{where} asks for {', '.join(map(repr, missing))}, and the signal has "
            f"{', '.join(sorted(arguments))}."
        )
