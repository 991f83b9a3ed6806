"""As whom a call acts: the rules for requests, for jobs, and for handlers that call handlers.

In a job nobody acts as somebody else without a grant, whichever function is called (B164, P103).
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final, Protocol

from kumiko_django.exceptions import AccessDenied, ScopeError
from kumiko_django.handlers.context import acting
from kumiko_django.handlers.principals import (
    Principal,
    SystemUser,
    anonymous_principal,
    system_principal,
    user_principal,
)
from kumiko_django.types import ambient
from kumiko_django.types.hatches import report_use
from kumiko_django.types.ids import SYSTEM_USER_ID

GRANT: Final = "system_identity"


class Switches(Protocol):
    """A run, as far as it matters here."""

    tenant_id: str

    def default_principal(self) -> Principal:
        """As whom the run acts."""

    def allow_switch(self, method: str, detail: str) -> None:
        """Raise AccessDenied unless the run may act as somebody else; report it either way."""


current_run: ContextVar[Switches | None] = ContextVar("kumiko_current_run", default=None)
"""The run that calls, if a job does."""


class _Process:
    """What holds in this process."""

    is_worker = False


process = _Process()


def only_in_runs() -> None:
    """Say that this process is a worker's: who calls outside of a run has lost its context.

    A thread that a job starts without copying the context would be in no job, and ``user=`` be
    believed there, without a grant and without a record.
    """
    process.is_worker = True


def who_acts(user: Any, tenant_id: str, method: str, name: str) -> Principal:
    """The principal of a call from anywhere.

    Args:
        user: As the caller gave it; None for whoever acts already.
        tenant_id: The scope's.
        method: How the caller spells the function, for messages.
        name: The handler's.

    Raises:
        AccessDenied: The user cannot act, or the job may not act as another.
        ScopeError: Whoever acts does so in another tenant.
    """
    around, run = acting.get(), current_run.get()
    if around is not None and (user is None or user == around.principal):
        if around.principal.tenant_id != tenant_id:
            raise ScopeError(
                f"{name}: {around.principal} acts in tenant {around.principal.tenant_id!r}, and "
                f"the scope is that of {tenant_id!r}. Leave it first."
            )
        return around.principal
    if run is not None:
        if user is None and run.tenant_id == tenant_id:
            return run.default_principal()
        whom = "the system user" if user is None else described(user)
        run.allow_switch(method, f"{method}: {name} as {whom}")
        return system_principal(tenant_id) if user is None else anybody(user, tenant_id)
    return _outside_of_jobs(user, tenant_id, name)


def _outside_of_jobs(user: Any, tenant_id: str, name: str) -> Principal:
    caller = ambient.user_id.get()
    if user is None:
        if caller is None:
            return anonymous_principal(tenant_id)
        return user_principal(caller, tenant_id)
    if process.is_worker:
        raise AccessDenied(
            f"{name}: called in a worker, and in no run. A thread of a job acts as nobody unless "
            "it has the job's context: contextvars.copy_context().run(...)."
        )
    if isinstance(user, SystemUser):
        report_use(
            GRANT,
            user.reason,
            tenant_id=tenant_id,
            actor_id=SYSTEM_USER_ID,
            caller_id=caller,
            detail=f"{name} as the system user",
        )
        return system_principal(tenant_id)
    if _is_system(user):
        raise AccessDenied(
            f"{name}: outside of jobs nobody acts as the system without saying why. Give "
            "user=system_user('why')."
        )
    return anybody(user, tenant_id)


def anybody(user: Any, tenant_id: str) -> Principal:
    """The principal of whatever stands for a user, the system included; roles are looked up.

    Raises:
        AccessDenied, ValueError, SettingsError: As :func:`user_principal`.
        ScopeError: It is a principal of another tenant.
    """
    if isinstance(user, Principal):
        if user.tenant_id != tenant_id:
            raise ScopeError(
                f"{user} is one of tenant {user.tenant_id!r}, and cannot act in {tenant_id!r}."
            )
        if user.kind == "anonymous":
            return anonymous_principal(tenant_id)
        user = user.id
    if isinstance(user, SystemUser) or _is_system(user):
        return system_principal(tenant_id)
    return user_principal(user, tenant_id)


def _is_system(user: Any) -> bool:
    """Whether it is the system's principal or key. A user of the project never is."""
    if hasattr(user, "pk"):
        return False
    return SYSTEM_USER_ID in (user, getattr(user, "id", None))


def described(user: Any) -> str:
    """Whom a call names, in a few words."""
    if isinstance(user, SystemUser) or _is_system(user):
        return "the system user"
    if isinstance(user, Principal):
        return str(user)
    return f"user {str(getattr(user, 'pk', user))[:100]}"
