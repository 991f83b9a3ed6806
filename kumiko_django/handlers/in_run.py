"""Handlers as a job calls them: ``ctx.write`` and its siblings."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Protocol
from uuid import UUID

from kumiko_django.conf import get_settings
from kumiko_django.definitions.grants import is_system_scoped
from kumiko_django.definitions.job import JobDefinition
from kumiko_django.exceptions import AccessDenied, ScopeError
from kumiko_django.handlers.context import acting
from kumiko_django.handlers.identity import GRANT, anybody, described
from kumiko_django.handlers.principals import (
    Principal,
    anonymous_principal,
    system_principal,
    user_principal,
)
from kumiko_django.types import ambient
from kumiko_django.types.hatches import report_use
from kumiko_django.types.ids import SYSTEM_USER_ID


class RunFacts(Protocol):
    """A run, as far as it matters here."""

    @property
    def known_definition(self) -> JobDefinition:
        """The job."""

    @property
    def run_id(self) -> UUID:
        """The primary key of its record."""

    @property
    def tenant_id(self) -> str:
        """The tenant that it is for."""

    def ambient_values(self) -> dict[ContextVar[Any], Any]:
        """What is ambient in it."""

    def note(self, message: str) -> None:
        """Write a line into its log."""


class RunIdentity:
    """As whom one run acts, and as whom else it may. Every run has one, most use none."""

    __slots__ = ("_members", "_noted", "_run")

    def __init__(self, run: RunFacts) -> None:
        self._run = run
        self._noted: tuple[str, ...] = ()
        self._members: MemberReader | None = None

    @property
    def tenant_id(self) -> str:
        """The run's."""
        return self._run.tenant_id

    @property
    def caller_id(self) -> str | None:
        """The key of the user who has caused the run."""
        caller: str | None = self._run.ambient_values()[ambient.user_id]
        return caller

    @property
    def members(self) -> MemberReader:
        """The member reader of the run's tenant, made on first use (B165)."""
        if self._members is None:
            self._members = MemberReader(self.tenant_id)
        return self._members

    def default_principal(self) -> Principal:
        """As whom the run acts: its tenant's system user (B163), or who has caused it (P102).

        Raises:
            AccessDenied: That user is gone, or not active any more.
        """
        if get_settings().jobs_write_as == "caller":
            if self.caller_id is not None:
                return user_principal(self.caller_id, self.tenant_id)
            origin = self._run.ambient_values()[ambient.write_origin]
            if origin is not None and origin.is_gated:
                return anonymous_principal(self.tenant_id)
        return system_principal(self.tenant_id)

    def allow_switch(self, method: str, detail: str) -> None:
        """Let the run act as somebody else, on record; or refuse, on record as well (B164, B239).

        Args:
            method: What the job has called.
            detail: What is to be done, and as whom.

        Raises:
            AccessDenied: The job has no grant and is not of a system-scoped app (P103).
        """
        definition = self._run.known_definition
        job, app = definition.qualified_name, definition.app_label
        reason = definition.escape_hatches.get(GRANT)
        if reason is None and is_system_scoped(definition):
            reason = f"{job} is a job of the system-scoped app {app!r}"
        report_use(
            GRANT,
            reason or "no grant",
            tenant_id=self.tenant_id,
            actor_id=SYSTEM_USER_ID,
            caller_id=self.caller_id,
            job_name=job,
            run_id=self._run.run_id,
            detail=detail,
            refused=reason is None,
        )
        if reason is None:
            raise AccessDenied(
                f"{job} may not act as another user ({method}): it lacks the grant {GRANT!r}. Add "
                f'escape_hatches={{"{GRANT}": "why"}} to the job, or kumiko_system_scope = True to '
                f"the AppConfig of {app!r}."
            )

    def somebody(self, method: str, name: str, user: Any) -> Callable[[str], Principal]:
        """What gives the principal of somebody else, if the run may act as one."""

        def who(tenant_id: str) -> Principal:
            self.allow_switch(method, f"{method}: {name} as {described(user)}")
            return anybody(user, tenant_id)

        return who

    def noted(self, name: str, who: Callable[[str], Principal]) -> Callable[[str], Principal]:
        """The same, and the run's log says as whom it writes: once for each (P102)."""

        def noting(tenant_id: str) -> Principal:
            principal = who(tenant_id)
            line = f"{name} as {principal}, caused by {self.caller_id or 'nobody'}"
            if line not in self._noted:
                self._noted += (line,)
                self._run.note(line)
            return principal

        return noting

    @contextlib.contextmanager
    def entered(self, method: str) -> Iterator[None]:
        """A block in which all is ambient that is in the run, whatever thread asks (B163, B174).

        Raises:
            ScopeError: The handler has entered the scope of another tenant.
        """
        scope = ambient.scope.get()
        if scope is not None and scope.tenant_id != self.tenant_id:
            raise ScopeError(
                f"{method} acts in the tenant of the run, {self.tenant_id!r}, but is called in the "
                f"scope of {scope.tenant_id!r}. Leave that scope first; or, with the grant "
                f"{GRANT!r}, call kumiko_django.handlers.write() or query() in it."
            )
        with ambient.entered({**self._run.ambient_values(), acting: None}):
            yield


class MemberReader:
    """Asks queries as members of one tenant; their roles are looked up once in a run (B165)."""

    def __init__(self, tenant_id: str) -> None:
        self._tenant_id = tenant_id
        self._principals: dict[str, Principal] = {}

    def principal(self, user: Any) -> Principal:
        """The principal of a member.

        Raises:
            AccessDenied: The user is no member of the tenant, or cannot act.
        """
        key = str(getattr(user, "pk", user))
        if key not in self._principals:
            principal = user_principal(user, self._tenant_id)
            if principal.kind != "user" or not principal.is_member:
                raise AccessDenied(f"{principal} is no member of tenant {self._tenant_id!r}.")
            self._principals[key] = principal
        return self._principals[key]
