"""``tenant_scope`` and ``system_scope``: set who work is done for, exactly for a block (P106)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextvars import Token
from types import TracebackType
from typing import Any, TypeVar, cast
from uuid import UUID

from kumiko_django.conf import get_settings
from kumiko_django.exceptions import ScopeError
from kumiko_django.types import ambient
from kumiko_django.types.ids import SYSTEM

F = TypeVar("F", bound=Callable[..., Any])
MAX_TENANT_ID_LENGTH = 128
"""Longest tenant id in characters; the history's column is this wide."""


def clean_tenant_id(value: object) -> str:
    """A tenant id as text, as it is kept in rows, keys and envelopes.

    Args:
        value: Text, a whole number or a UUID.

    Raises:
        ScopeError: It is none of these, empty, too long, or has control characters or space at
            its ends.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | UUID):
        raise ScopeError(
            f"A tenant id is text, a whole number or a UUID, not {value!r}. Give the tenant's key, "
            "not the tenant."
        )
    text = str(value)
    if not text or text != text.strip() or not text.isprintable():
        raise ScopeError(
            f"The tenant id {text!r} is empty, has space at an end, or control characters."
        )
    if len(text) > MAX_TENANT_ID_LENGTH:
        raise ScopeError(
            f"The tenant id {text[:20]!r}... is longer than {MAX_TENANT_ID_LENGTH} characters."
        )
    return text


class _ScopeBlock:
    """A scope as context manager and decorator, sync and async. Blocks nest and may be re-used."""

    def __init__(self, scope: ambient.Scope) -> None:
        self._scope = scope
        self._tokens: list[Token[ambient.Scope | None]] = []

    def __enter__(self) -> ambient.Scope:
        self._tokens.append(ambient.scope.set(self._scope))
        return self._scope

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        ambient.scope.reset(self._tokens.pop())

    async def __aenter__(self) -> ambient.Scope:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, traceback)

    def __call__(self, function: F) -> F:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ScopeError(
                f"{function.__qualname__} is a generator: its body would run outside the scope. "
                "Use the scope as a context manager inside it."
            )
        scope = self._scope
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def run_async(*args: Any, **kwargs: Any) -> Any:
                with _ScopeBlock(scope):
                    return await function(*args, **kwargs)

            return cast("F", run_async)

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with _ScopeBlock(scope):
                return function(*args, **kwargs)

        return cast("F", run)


def tenant_scope(tenant_id: str | int | UUID) -> _ScopeBlock:
    """Work for one tenant, in a ``with`` or ``async with`` block or as a decorator.

    Raises:
        ScopeError: The id is unusable, or is ``SYSTEM``.
    """
    text = clean_tenant_id(tenant_id)
    if text == SYSTEM:
        raise ScopeError("SYSTEM is not a tenant. Use system_scope('why') for work of no tenant.")
    return _ScopeBlock(ambient.Scope(text, "tenant"))


def system_scope(reason: str) -> _ScopeBlock:
    """Work for no tenant, with the reason why; forms as :func:`tenant_scope`.

    Raises:
        ScopeError: The reason is missing.
    """
    if not isinstance(reason, str) or not reason.strip():
        raise ScopeError("system_scope needs a reason, e.g. system_scope('nightly clean-up').")
    return _ScopeBlock(ambient.Scope(SYSTEM, "system", reason.strip()))


def current_tenant_id() -> str | None:
    """The tenant that work is done for now.

    Returns:
        The tenant's id; ``SYSTEM`` in a system scope and wherever tenancy is off; None outside
        any scope.
    """
    scope = ambient.scope.get()
    if scope is not None:
        return scope.tenant_id
    return None if get_settings().tenancy_enabled else SYSTEM


def run_scope(tenant_id: str) -> ambient.Scope:
    """The scope that a run for ``tenant_id`` enters."""
    if tenant_id == SYSTEM:
        return ambient.Scope(SYSTEM, "system", "job of the system")
    return ambient.Scope(tenant_id, "tenant")
