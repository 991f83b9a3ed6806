"""Looking into handlers: what a call of one would run, whatever it is wrapped in."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction

from kumiko_django.exceptions import DefinitionError


def innermost(handler: Any) -> Any:
    """``handler`` without the partials around it."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    return handler


def runs_on_loop(handler: Callable[..., Any]) -> bool:
    """Whether calling ``handler`` gives a coroutine.

    ``inspect.iscoroutinefunction`` alone would take an object with an ``async def __call__`` for a
    synchronous handler: its coroutine would be made in a thread, never awaited, and the run be
    recorded as completed.
    """
    inner = innermost(handler)
    return iscoroutinefunction(inner) or iscoroutinefunction(_call_method(inner))


def place(handler: Any) -> tuple[str, str]:
    """Module and qualified name of ``handler``, for messages and for finding its app."""
    inner = innermost(handler)
    module = getattr(inner, "__module__", None) or "?"
    name = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    return str(module), str(name)


def check_handler(handler: object, where: str) -> None:
    """Refuse what cannot be called as ``handler(payload, ctx)``, or would run nothing.

    Raises:
        DefinitionError: It is such a thing.
    """
    if not callable(handler):
        raise DefinitionError(
            f"{where}: handler must be a function taking (payload, ctx), not {handler!r}."
        )
    inner = innermost(handler)
    if isinstance(inner, type):
        raise DefinitionError(
            f"{where}: the handler is a class; calling it would make an object and run nothing. "
            "Give a function, or an object with a __call__(payload, ctx)."
        )
    for called in (inner, _call_method(inner)):
        if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
            raise DefinitionError(
                f"{where}: the handler is a generator function; calling it would run nothing. "
                "Use return instead of yield."
            )
    _check_signature(handler, where)


def _check_signature(handler: Callable[..., Any], where: str) -> None:
    try:
        signature = inspect.signature(handler)
    except ValueError:  # a builtin without a signature: the call itself will tell
        return
    try:
        signature.bind("payload", "ctx")
    except TypeError as error:
        raise DefinitionError(
            f"{where}: the handler must be callable as handler(payload, ctx): {error}."
        ) from error
    if list(signature.parameters)[:2] == ["ctx", "payload"]:
        raise DefinitionError(
            f"{where}: the handler is called as handler(payload, ctx), in this order; its "
            "parameters are (ctx, payload)."
        )


def _call_method(inner: Any) -> Any:
    return None if inspect.isroutine(inner) else getattr(type(inner), "__call__", None)  # noqa: B004
