"""Calls with options that are not there, refused in words: by name, with the nearest (P10)."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from kumiko_django.exceptions import DefinitionError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def explained(called: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Have a function raise ``DefinitionError`` where Python has a bare ``TypeError``.

    Args:
        called: How messages call it.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        known = [name for name in signature.parameters if name != "self"]

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for option in kwargs:
                if option not in known:
                    raise DefinitionError(unknown_option(called, option, known))
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                raise DefinitionError(f"{called}: {error}.") from None
            return function(*args, **kwargs)

        return call

    return decorate


def explained_class(cls: type[T]) -> type[T]:
    """Do the same for the making of a class's instances; not for its subclasses'."""
    cls.__init__ = explained(cls.__name__)(cls.__init__)  # type: ignore[method-assign]
    return cls


def unknown_option(called: str, option: str, known: list[str]) -> str:
    """That there is no such option, and which one may be meant."""
    near = difflib.get_close_matches(option, known, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Known options: {', '.join(known)}."
    return f"{called} has no option {option!r}. {hint}"
