"""``tenant_scope`` and ``system_scope``: set who work is done for, exactly for a block (P106)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Any, TypeVar, cast
from uuid import UUID

from kumiko_django.conf import get_settings
from kumiko_django.definitions.handler import innermost, place, runs_on_loop
from kumiko_django.exceptions import ScopeError
from kumiko_django.types import ambient
from kumiko_django.types.hatches import SCOPE_SWITCH, report_use
from kumiko_django.types.ids import SYSTEM, SYSTEM_USER_ID

F = TypeVar("F", bound=Callable[..., Any])
MAX_TENANT_ID_LENGTH = 128
"""Longest tenant id in characters; the history's column is this wide."""
_MAX_TENANT_ID_BITS = 512


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
    text = _plain_text(value)
    if not text or text != text.strip() or not text.isprintable():
        raise ScopeError(
            f"The tenant id {text!r} is empty, has space at an end, or control characters."
        )
    if len(text) > MAX_TENANT_ID_LENGTH:
        raise _too_long(text)
    return text


def _plain_text(value: str | int | UUID) -> str:
    """``value`` as exactly a str; members of enumerations by what they stand for."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        if value.bit_length() > _MAX_TENANT_ID_BITS:  # thousands of digits would not even convert
            raise _too_long(hex(value))
        return str(int(value))
    return str(value)


def _too_long(text: str) -> ScopeError:
    return ScopeError(
        f"The tenant id {text[:20]!r}... is longer than {MAX_TENANT_ID_LENGTH} characters."
    )


_entered: ContextVar[tuple[tuple[object, ambient.Scope | None], ...]] = ContextVar(
    "kumiko_entered_scopes", default=()
)
"""The blocks that this thread or task is in, innermost last, each with the scope outside of it.

Kept here and not in the block, since one block object may be entered by many tasks and threads at
once. And not as tokens of the ContextVar: these are void in another context, which is where asgiref
leaves a block that it has entered in a thread."""


class _ScopeBlock:
    """A scope as context manager and decorator, sync and async. Blocks nest and may be re-used."""

    def __init__(self, scope: ambient.Scope) -> None:
        self._scope = scope

    def __repr__(self) -> str:
        if self._scope.mode == "system":
            return f"system_scope({self._scope.reason!r})"
        return f"tenant_scope({self._scope.tenant_id!r})"

    def __enter__(self) -> ambient.Scope:
        if self._scope.mode == "tenant" and not get_settings().tenancy_enabled:
            raise ScopeError(
                f"{self!r} is entered, but tenancy is off and all work belongs to SYSTEM. Set "
                'KUMIKO["TENANTS"] to a callable that gives the active tenant ids, or drop the '
                "scope."
            )
        outside = ambient.scope.get()
        if outside is not None and outside.mode == "tenant" and outside != self._scope:
            _tell_switch(outside, self._scope)
        _entered.set((*_entered.get(), (self, outside)))
        ambient.scope.set(self._scope)
        return self._scope

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        *others, (block, outside) = _entered.get() or ((None, None),)
        if block is not self:
            raise ScopeError(
                f"{self!r} is left where it is not the innermost scope: in another order, task or "
                "thread than it was entered in. Use it in a with statement, and not around a yield."
            )
        _entered.set(tuple(others))
        ambient.scope.set(outside)

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
        name = place(function)[1]
        if isinstance(innermost(function), type):
            raise ScopeError(f"{name} is a class; put the scope around its methods.")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise _generator(name)
        if runs_on_loop(function):

            @functools.wraps(function)
            async def run_async(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return await function(*args, **kwargs)

            return cast("F", run_async)

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with self:
                result = function(*args, **kwargs)
            # What a wrapper returns unseen would do its work outside.
            if inspect.isgenerator(result) or inspect.isasyncgen(result):
                raise _generator(name)
            return self._awaited(result) if inspect.isawaitable(result) else result

        return cast("F", run)

    async def _awaited(self, result: Awaitable[Any]) -> Any:
        with self:
            return await result


def _tell_switch(outside: ambient.Scope, inside: ambient.Scope) -> None:
    """Put on record that a tenant's code works for another one, or for none (design 7)."""
    run, user = ambient.run.get(), ambient.user_id.get()
    into = "SYSTEM" if inside.tenant_id == SYSTEM else f"tenant {inside.tenant_id!r}"
    report_use(
        SCOPE_SWITCH,
        inside.reason or "tenant_scope()",
        tenant_id=outside.tenant_id,
        actor_id=(user or "") if run is None else SYSTEM_USER_ID,
        caller_id=user,
        job_name="" if run is None else ambient.handler.get() or "",
        run_id=None if run is None else run.run_id,
        detail=f"into the scope of {into}",
    )


def _generator(name: str) -> ScopeError:
    return ScopeError(
        f"{name} is a generator: its body would run outside the scope. "
        "Use the scope as a context manager inside it."
    )


def tenant_scope(tenant_id: str | int | UUID) -> _ScopeBlock:
    """Work for one tenant, in a ``with`` or ``async with`` block or as a decorator.

    Raises:
        ScopeError: The id is unusable, or is ``SYSTEM``; when entered, tenancy is off.
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
