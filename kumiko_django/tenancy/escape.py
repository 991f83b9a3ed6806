"""The grants of one run: each use is checked and told before anything goes through (B149-B153)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kumiko_django.definitions.grants import Grant, is_system_scoped
from kumiko_django.definitions.job import JobDefinition
from kumiko_django.exceptions import AccessDenied, FacetMissing, ScopeError
from kumiko_django.tenancy.lifting import Lease
from kumiko_django.types import ambient
from kumiko_django.types.hatches import hatch_port, report_use
from kumiko_django.types.ids import SYSTEM_USER_ID


class NotGranted(AccessDenied, FacetMissing):
    """Something is not on a job's context because the job lacks the grant for it."""


class RunHatches:
    """What a run may do besides what its scope allows. Every run has one, most use none.

    Attributes:
        job_name: Qualified name of the job.
        tenant_id: The run's tenant.
        lease: Lasts as long as the run.
    """

    __slots__ = ("_caller_id", "_definition", "_run_id", "job_name", "lease", "tenant_id")

    def __init__(
        self,
        job_name: str,
        definition: JobDefinition | None,
        tenant_id: str,
        run_id: UUID,
        caller_id: str | None,
    ) -> None:
        """Note for whom.

        Args:
            job_name: Qualified name of the job.
            definition: The job; without it nothing is granted.
            tenant_id: The run's.
            run_id: Its ``JobRun``.
            caller_id: The key of the user who has caused it.
        """
        self.job_name = job_name
        self.tenant_id = tenant_id
        self._definition = definition
        self._run_id = run_id
        self._caller_id = caller_id
        # Made at once: two threads that need one first would make two, of which one would not end.
        self.lease = Lease(tenant_id)

    def reason_for(self, grant: Grant, what: str) -> str:
        """Why the job may use something.

        Args:
            grant: What it needs.
            what: What it asks for, as its author has written it.

        Raises:
            AccessDenied: It was not granted; that is on record, too.
        """
        reason = self._granted(grant)
        if reason is not None:
            return reason
        message = (
            f"{self.job_name} may not use {what}: it lacks the grant {grant!r}. Add "
            f'escape_hatches={{"{grant}": "why"}} to the job.'
        )
        self.refused(grant, "no grant", what)
        # ``cross_tenant_reads`` is an attribute of its own, and absent without the grant (B149).
        raise (NotGranted if grant == "cross_tenant_reads" else AccessDenied)(message)

    def system_reason(self) -> str:
        """Why the job may use ``ctx.system_db`` (B148, B239).

        Raises:
            AccessDenied: Its app is not system-scoped; that is on record, too.
        """
        definition = self._definition
        app = None if definition is None else definition.app_label
        if definition is None or not is_system_scoped(definition):
            self.refused("cross_tenant_reads", "not of a system-scoped app", "ctx.system_db")
            raise NotGranted(
                f"{self.job_name} has no ctx.system_db: its app is not system-scoped. Add "
                f"kumiko_system_scope = True to the AppConfig of {app!r}."
            )
        generated = f"{self.job_name} is a job of the system-scoped app {app!r}"
        return self._granted("cross_tenant_reads") or generated

    def used(self, grant: Grant, reason: str, detail: str) -> None:
        """Tell of a use, once it is certain that it may be; errors as :meth:`check_here`."""
        self.check_here(detail)
        self._report(grant, reason, detail, refused=False)

    def check_here(self, detail: str) -> None:
        """Refuse to be used where the run is not.

        Raises:
            ScopeError: The run has ended, or its handler is in another scope than the run's.
        """
        scope = ambient.scope.get()
        if not self.lease.is_open:
            raise ScopeError(f"{detail}: the run of {self.job_name} has ended.")
        if scope is None or scope.tenant_id != self.tenant_id:
            where = "no scope" if scope is None else f"the scope of {scope.tenant_id!r}"
            raise ScopeError(
                f"{detail} belongs to the run's tenant, {self.tenant_id!r}, and is called in "
                f"{where}. Leave that scope first; a thread of your own needs "
                "contextvars.copy_context()."
            )

    def refused(self, grant: Grant, reason: str, detail: str) -> None:
        """Tell of something that was not allowed."""
        self._report(grant, reason, detail, refused=True)

    def close(self) -> None:
        """The run has ended: nothing that it has opened stays open, and its uses are written."""
        self.lease.end()
        hatch_port.run_ended(self._run_id)

    def _granted(self, grant: Grant) -> str | None:
        return None if self._definition is None else self._definition.escape_hatches.get(grant)

    def _report(self, grant: Grant, reason: str, detail: str, *, refused: bool) -> None:
        facts: dict[str, Any] = {
            "tenant_id": self.tenant_id,
            "actor_id": SYSTEM_USER_ID,
            "caller_id": self._caller_id,
            "job_name": self.job_name,
            "run_id": self._run_id,
        }
        report_use(grant, reason, detail=detail, refused=refused, **facts)
