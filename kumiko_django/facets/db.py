"""``ctx.db``, ``ctx.cross_tenant_reads`` and ``ctx.system_db``: to the database (B145-B150).

What is the tenant's is open. What is beyond it takes a grant, and is told before it is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from django.db import connections, router
from django.db.models import Model, QuerySet

from kumiko_django.exceptions import AccessDenied, FacetMissing
from kumiko_django.tenancy.access import column_value
from kumiko_django.tenancy.cross_tenant import reading_all_of
from kumiko_django.tenancy.databases import own_database
from kumiko_django.tenancy.escape import RunHatches
from kumiko_django.tenancy.escape_blocks import GlobalWrites, RawSql
from kumiko_django.tenancy.marks import pinned_to
from kumiko_django.tenancy.rules import column_of
from kumiko_django.tenancy.scope import clean_tenant_id
from kumiko_django.types.ids import SYSTEM

M = TypeVar("M", bound=Model)
_DUMMY = "django.db.backends.dummy"


class Db:
    """The database as a run may use it: ``ctx.db(Invoice)``."""

    __slots__ = ("_hatches",)

    def __init__(self, hatches: RunHatches) -> None:
        self._hatches = hatches

    def __call__(self, model: type[M]) -> QuerySet[M]:
        """A queryset of the run's tenant, whatever scope is entered in between: refused there.

        Raises:
            FacetMissing: There is no database.
            ScopeError: It is called in another scope than the run's, or after the run.
        """
        _check_database(self._hatches, model, "ctx.db")
        self._hatches.check_here(f"ctx.db({model._meta.label})")
        return pinned_to(model._default_manager.all(), self._hatches.tenant_id)

    def unsafe_raw(self, using: str | None = None) -> RawSql:
        """``with ctx.db.unsafe_raw() as cursor``: SQL of one's own, which no scope keeps to rows.

        In an async handler ``async with``; the cursor's calls are then awaited. ``raw()``,
        ``extra()`` and ``RawSQL`` on tenant models pass inside the block.

        Args:
            using: The database's alias; by default that with the tenant's rows.

        Raises:
            AccessDenied: The job lacks the grant ``unsafe_raw``.
            ScopeError: When entered in another scope than the run's, or after the run.
        """
        return RawSql(self._hatches, using or own_database())

    def global_writes(self) -> GlobalWrites:
        """``with ctx.db.global_writes()``: SYSTEM's rows may be written, also ``async with``.

        A new row that names no tenant is SYSTEM's inside the block. Rows of other tenants stay out
        of reach.

        Raises:
            AccessDenied: The job lacks the grant ``global_writes``.
            ScopeError: When entered in another scope than the run's, or after the run.
        """
        return GlobalWrites(self._hatches)


class CrossTenantReads:
    """Reads the rows of all tenants: ``ctx.cross_tenant_reads(Invoice)``."""

    __slots__ = ("_detail", "_hatches", "_reason")

    def __init__(self, hatches: RunHatches, reason: str, detail: str = "") -> None:
        self._hatches, self._reason, self._detail = hatches, reason, detail

    def __call__(self, model: type[M], *joined: type[Model]) -> QuerySet[M]:
        """A queryset of the rows of all tenants, to be evaluated before the run ends.

        Writes through it reach the tenant's own rows only. Rows of other models that it joins are
        those of the scope, unless they are given as well.

        Args:
            model: What is read.
            joined: Models that are joined, and read across tenants, too.

        Raises:
            FacetMissing: There is no database.
            ScopeError: It is called in another scope than the run's, or after the run.
        """
        what = self._detail or "ctx.cross_tenant_reads"
        _check_database(self._hatches, model, what)
        names = ", ".join([model._meta.label, *(each._meta.label for each in joined)])
        self._hatches.used("cross_tenant_reads", self._reason, f"{what}({names})")
        return reading_all_of(model, joined, self._hatches.lease)


class SystemDb:
    """For jobs of system-scoped apps: reading across tenants, after saying what is known (B148).

    Each method checks what it is told and gives what reads the rows of all tenants.
    """

    __slots__ = ("_hatches", "_reason")

    def __init__(self, hatches: RunHatches, reason: str) -> None:
        self._hatches, self._reason = hatches, reason

    def assert_tenant_match(self, tenant_id: object) -> CrossTenantReads:
        """The work is for the run's own tenant.

        Raises:
            AccessDenied: It is for another one; that is on record.
            ScopeError: It is no tenant id.
        """
        found = clean_tenant_id(tenant_id)
        if found != self._hatches.tenant_id:
            raise self._denied(f"assert_tenant_match({found!r})")
        return self._reads("assert_tenant_match", self._reason)

    def assert_rows_tenant(self, rows: Iterable[Any], field: str | None = None) -> CrossTenantReads:
        """The rows that were found are the run's tenant's own, or SYSTEM's.

        Args:
            rows: Instances, or mappings as ``values()`` gives them.
            field: The name of the tenant column; by default that of an instance's model, else
                ``tenant_id``.

        Raises:
            AccessDenied: One of them is another tenant's, or does not say whose; that is on record.
        """
        for row in rows:
            if not self._is_own(row, field):
                raise self._denied(f"assert_rows_tenant({_shown(row)})")
        return self._reads("assert_rows_tenant", self._reason)

    def acknowledge_cross_tenant(self, reason: str) -> CrossTenantReads:
        """The work is about several tenants, and that is right.

        Args:
            reason: Why; it stands in the record.

        Raises:
            ValueError: The reason is missing.
        """
        if not isinstance(reason, str) or not reason.strip():
            raise ValueError(
                "acknowledge_cross_tenant needs a reason, e.g. "
                "acknowledge_cross_tenant('usage of all customers for the invoice run')."
            )
        return self._reads("acknowledge_cross_tenant", reason.strip())

    def _reads(self, method: str, reason: str) -> CrossTenantReads:
        return CrossTenantReads(self._hatches, reason, f"ctx.system_db.{method}()")

    def _denied(self, call: str) -> AccessDenied:
        own = self._hatches.tenant_id
        self._hatches.refused("cross_tenant_reads", "another tenant's", f"ctx.system_db.{call}")
        return AccessDenied(
            f"{self._hatches.job_name}: ctx.system_db.{call} is not tenant {own!r}'s, for which "
            "the job runs. Use acknowledge_cross_tenant('why') if it is about several tenants."
        )

    def _is_own(self, row: Any, field: str | None) -> bool:
        if isinstance(row, Mapping):
            name = field or "tenant_id"
            return name in row and _as_tenant(row[name]) in (self._hatches.tenant_id, SYSTEM)
        column = column_of(type(row)) if isinstance(row, Model) else None
        name = field or (column.field.attname if column is not None else "tenant_id")
        known = getattr(row, "__dict__", {})
        if name not in known:
            return False  # it was deferred, or is not there
        value = known[name]
        if column is not None and name in (column.field.attname, column.field.name):
            own = {column_value(column.field, each) for each in (self._hatches.tenant_id, SYSTEM)}
            return column.field.to_python(value) in own
        return _as_tenant(value) in (self._hatches.tenant_id, SYSTEM)


class ReachesDatabase:
    """The part of a job's context that leads to the database."""

    _hatches: RunHatches

    @property
    def db(self) -> Db:
        """The tenant's rows; it is always there, and asks for no database before it is used."""
        return Db(self._hatches)

    @property
    def cross_tenant_reads(self) -> CrossTenantReads:
        """Reads the rows of all tenants.

        Raises:
            AccessDenied: The job lacks the grant ``cross_tenant_reads``. Also a ``FacetMissing``.
        """
        reason = self._hatches.reason_for("cross_tenant_reads", "ctx.cross_tenant_reads")
        return CrossTenantReads(self._hatches, reason)

    @property
    def system_db(self) -> SystemDb:
        """Reads the rows of all tenants, in jobs of system-scoped apps.

        Raises:
            AccessDenied: The job's app is not system-scoped. Also a ``FacetMissing``.
        """
        return SystemDb(self._hatches, self._hatches.system_reason())


def _as_tenant(value: object) -> object:
    return SYSTEM if value is None else str(value)


def _shown(row: Any) -> str:
    meta = getattr(row, "_meta", None)
    return "a row" if meta is None else f"{meta.label} {getattr(row, 'pk', None)}"


def _check_database(hatches: RunHatches, model: type[Model], what: str) -> None:
    alias = router.db_for_read(model)
    if connections.settings[alias]["ENGINE"] == _DUMMY:
        raise FacetMissing(
            f"{hatches.job_name}: {what} has no database for {model._meta.label}. Set "
            f"DATABASES[{alias!r}] in the settings."
        )
