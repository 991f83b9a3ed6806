"""What the ambient scope may reach, and how a tenant's id is written in a column."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

from django.core.exceptions import ValidationError
from django.db import models

from kumiko_django.conf import get_settings
from kumiko_django.exceptions import ScopeError
from kumiko_django.tenancy.lifting import NOTHING, Lifted, in_force
from kumiko_django.types import ambient
from kumiko_django.types.ids import SYSTEM

Operation: TypeAlias = Literal["read", "insert", "update", "delete", "raw"]

_PASSIVE: dict[Operation, str] = {
    "read": "read",
    "insert": "added to",
    "update": "changed",
    "delete": "deleted from",
    "raw": "read with SQL of your own",
}


class Access(NamedTuple):
    """Whose rows a statement reaches: those of one tenant (or of SYSTEM), and what is lifted."""

    tenant_id: str
    lifted: Lifted = NOTHING

    @property
    def name(self) -> str:
        """Who it is, for messages."""
        return "SYSTEM" if self.tenant_id == SYSTEM else f"tenant {self.tenant_id!r}"

    def reads_all(self, model: type[models.Model]) -> bool:
        """Whether the rows of all tenants may be read."""
        return model._meta.concrete_model in self.lifted.cross_tenant_reads


def current_access(model: type[models.Model], operation: Operation) -> Access:
    """What may be reached here and now.

    Args:
        model: The tenant model that is asked for; the message names it.
        operation: What is to be done.

    Raises:
        ScopeError: There is no scope, and tenancy is on.
    """
    scope = ambient.scope.get()
    if scope is not None:
        return Access(scope.tenant_id, in_force(scope.tenant_id))
    if get_settings().tenancy_enabled:
        raise ScopeError(
            f"{model._meta.label} is {_PASSIVE[operation]} outside of any scope. Do it inside "
            "`with tenant_scope(tenant_id):`, or, for what belongs to no tenant, inside "
            "`with system_scope('why'):`."
        )
    return Access(SYSTEM, in_force(SYSTEM))


def column_value(field: models.Field[Any, Any], tenant_id: str) -> Any:
    """The value that ``field``, a tenant column, has in the rows of a tenant.

    Returns:
        Text, a whole number or a UUID, by the column's type; for ``SYSTEM`` what
        ``SYSTEM_TENANT_VALUE`` says, None by default.

    Raises:
        ScopeError: The id cannot stand in this column.
    """
    if tenant_id == SYSTEM:
        given = get_settings().system_tenant_value
        if given is None:
            return None
    else:
        given = tenant_id
    try:
        value = field.to_python(given)
    except (ValidationError, ValueError, TypeError) as error:
        raise _unfit(field, given) from error
    if tenant_id != SYSTEM and str(value) != tenant_id:
        # "05" and "5" would be two tenants everywhere but here.
        raise _unfit(field, given)
    return value


def _unfit(field: models.Field[Any, Any], given: object) -> ScopeError:
    where, kind, hint = f"{field.model._meta.label}.{field.name}", type(field).__name__, ""
    if isinstance(field, models.ForeignKey):
        target = field.target_field
        to = f"{target.model._meta.label}.{target.name}"
        kind = f"{kind} to {to}, a {type(target).__name__}"
        hint = (
            f" If your tenant ids come from another unique field than {to}, give the foreign key "
            'that one: to_field="slug", for example.'
        )
    return ScopeError(
        f"The tenant id {given!r} cannot stand in {where} (a {kind}). Enter the scope with the id "
        "as that column has it, written the usual way: no leading zeros, UUIDs in lower case with "
        f'dashes.{hint} For SYSTEM it is KUMIKO["SYSTEM_TENANT_VALUE"].'
    )
