"""The one rule that gives a job its tenant, at dispatch and again when it runs (P11, P67, P68)."""

from __future__ import annotations

from kumiko_django.conf import get_settings
from kumiko_django.definitions.job import JobDefinition
from kumiko_django.exceptions import ScopeError, TenantRequired
from kumiko_django.tenancy.directory import no_tenants
from kumiko_django.tenancy.scope import clean_tenant_id
from kumiko_django.types import ambient
from kumiko_django.types.arguments import AMBIENT, Ambient, TenantArgument
from kumiko_django.types.ids import SYSTEM


def tenant_for_dispatch(definition: JobDefinition, given: TenantArgument = AMBIENT) -> str:
    """The tenant that a job dispatched here and now belongs to.

    The payload has no say in it (P67): the tenant is the given one, else the scope's. A job of
    ``per_tenant`` that has neither belongs to SYSTEM, as one for all tenants (P45).

    Raises:
        SettingsError: The job is for every tenant, and nothing says which there are.
        TenantRequired: The job needs a tenant and none is given or ambient.
        ScopeError: The given one does not fit the job or the scope.
    """
    explicit = _explicit(given)
    if not get_settings().tenancy_enabled:
        if definition.per_tenant:
            raise no_tenants(definition.qualified_name)
        _refuse_without_tenancy(definition.qualified_name, explicit)
        return SYSTEM
    if definition.tenant == "system":
        if explicit not in (None, SYSTEM):
            raise ScopeError(
                f"{definition.qualified_name} is a job of the system (tenant='system'); it cannot "
                f"run for tenant {explicit!r}. Drop tenant_id=."
            )
        return SYSTEM
    scope = ambient.scope.get()
    if explicit is not None:
        _refuse_foreign(definition.qualified_name, explicit, scope)
        return explicit
    if scope is not None and scope.mode == "tenant":
        return scope.tenant_id
    if definition.per_tenant:
        return SYSTEM  # whose job it is to make one for every tenant
    raise TenantRequired(
        f"{definition.qualified_name} needs a tenant. Dispatch it inside tenant_scope(...), or "
        "give tenant_id=; tenant_id=SYSTEM says for once that it belongs to none. A job that "
        "never belongs to a tenant is defined with tenant='system'."
    )


def check_tenant_of_event(event: str, given: TenantArgument) -> None:
    """Refuse a tenant that no event may be emitted for here and now, whoever listens.

    Raises:
        ScopeError: The id is unusable, tenancy is off, or it is not the scope's.
    """
    explicit = _explicit(given)
    if not get_settings().tenancy_enabled:
        _refuse_without_tenancy(f"The event {event}", explicit)
    elif explicit is not None:
        _refuse_foreign(f"The event {event}", explicit, ambient.scope.get())


def tenant_for_run(definition: JobDefinition, carried: str | None) -> str:
    """The tenant that a job from the queue runs for.

    Args:
        definition: The job.
        carried: ``_tenantId`` of its envelope, which another producer may have left out.

    Raises:
        TenantRequired: The job needs one and carries none (user-needs 24).
        ScopeError: It carries one that does not fit the definition or is unusable.
    """
    if not get_settings().tenancy_enabled:
        if carried not in (None, SYSTEM):
            raise ScopeError(
                f"{definition.qualified_name} was queued for tenant {carried!r}, but tenancy is "
                'off here. Set KUMIKO["TENANTS"] as in the process that queued it.'
            )
        return SYSTEM
    if definition.tenant == "system":
        if carried not in (None, SYSTEM):
            raise ScopeError(
                f"{definition.qualified_name} is a job of the system, but was queued for tenant "
                f"{carried!r}."
            )
        return SYSTEM
    if carried is None:
        raise TenantRequired(
            f"{definition.qualified_name} was queued without _tenantId and its definition does "
            "not say tenant='system'. Its producer must send one."
        )
    return clean_tenant_id(carried)


def _explicit(given: TenantArgument) -> str | None:
    return None if given is None or isinstance(given, Ambient) else clean_tenant_id(given)


def _refuse_without_tenancy(what: str, explicit: str | None) -> None:
    if explicit not in (None, SYSTEM):
        raise ScopeError(
            f"{what}: tenant_id={explicit!r} is given, but tenancy is off. "
            'Set KUMIKO["TENANTS"] to a callable that gives the active tenant ids, or drop it.'
        )


def _refuse_foreign(what: str, explicit: str, scope: ambient.Scope | None) -> None:
    if scope is None or scope.mode == "system" or explicit in (scope.tenant_id, SYSTEM):
        return
    raise ScopeError(
        f"{what} was to be dispatched for tenant {explicit!r} from inside the scope of "
        f"tenant {scope.tenant_id!r}. Leave that scope first, or use "
        "system_scope('why') around it."
    )


__all__ = [
    "AMBIENT",
    "TenantArgument",
    "check_tenant_of_event",
    "tenant_for_dispatch",
    "tenant_for_run",
]
