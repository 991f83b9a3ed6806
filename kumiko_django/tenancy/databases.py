"""In which database a tenant's rows are, by ``TENANT_DATABASE``; every statement is held to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections

from kumiko_django.conf import get_settings
from kumiko_django.exceptions import ScopeError, SettingsError
from kumiko_django.tenancy.access import Access
from kumiko_django.tenancy.rules import TableRule
from kumiko_django.tenancy.scope import current_tenant_id
from kumiko_django.types.dotted import load_callable
from kumiko_django.types.ids import SYSTEM


def database_of(tenant_id: str) -> str | None:
    """The alias of the database with a tenant's rows; None where it is not said.

    ``SYSTEM`` is not asked for: its rows, reference data, are in every tenant's database.

    Raises:
        SettingsError: ``TENANT_DATABASE`` gives something else than the alias of a database of
            tenants.
    """
    find = tenant_database()
    if find is None or tenant_id == SYSTEM:
        return None
    alias: Any = find(tenant_id)
    if not isinstance(alias, str) or alias not in connections.databases:
        raise SettingsError(
            f'KUMIKO["TENANT_DATABASE"] gives {alias!r} for tenant {tenant_id!r}, which is not in '
            f"DATABASES. Give one of {', '.join(connections.databases)}."
        )
    if may_hold_tenants(alias) is False:
        raise SettingsError(
            f'KUMIKO["TENANT_DATABASE"] gives {alias!r} for tenant {tenant_id!r}, a database '
            'without tables of tenants. Add it to the attribute "databases" of that callable.'
        )
    return alias


def own_database() -> str:
    """The alias of the database with the rows of the scope; the default one where none is said.

    Raises:
        SettingsError: As :func:`database_of`.
    """
    tenant_id = current_tenant_id()
    found = None if tenant_id is None else database_of(tenant_id)
    return found or DEFAULT_DB_ALIAS


def awaited_database() -> str:
    """The database whose commit work waits for that is told no other.

    That with the scope's rows, if a transaction is open there; else the default one.

    Raises:
        SettingsError: As :func:`database_of`.
    """
    if tenant_database() is None:  # every dispatch asks
        return DEFAULT_DB_ALIAS
    own = own_database()
    return own if connections[own].in_atomic_block else DEFAULT_DB_ALIAS


def tenant_database() -> Callable[[str], Any] | None:
    """``TENANT_DATABASE`` as a callable, None where it is not set.

    Raises:
        SettingsError: It cannot be imported, or not be called with a tenant's id.
    """
    given = get_settings().tenant_database
    return _loaded(given) if isinstance(given, str) else given


@cache
def _loaded(path: str) -> Callable[[str], Any]:
    return load_callable("TENANT_DATABASE", path, "of the tenant id")


def declared_databases() -> tuple[str, ...] | None:
    """What ``TENANT_DATABASE`` has as its attribute ``databases``; None where it has none.

    Raises:
        SettingsError: It cannot be imported, or the attribute is no list of aliases.
    """
    declared: Any = getattr(tenant_database(), "databases", None)
    if declared is None:
        return None
    if isinstance(declared, str) or not isinstance(declared, Iterable):
        raise SettingsError(
            'The attribute "databases" of KUMIKO["TENANT_DATABASE"] must be a list of aliases, '
            f"not {declared!r}."
        )
    return tuple(declared)


def may_hold_tenants(alias: str) -> bool | None:
    """Whether the tables of tenant models belong into a database; None where nobody has said."""
    settings = get_settings()
    if settings.tenant_database is None or alias == DEFAULT_DB_ALIAS:
        return None if settings.tenant_database is None else True
    declared = declared_databases()
    if declared is not None:
        return alias in declared
    return False if alias == settings.history_database else None


def refuse_other_database(
    rules: Iterable[TableRule], access: Access, alias: str, *, reads: bool = False
) -> None:
    """Refuse a statement in a database where the rows of the scope's tenant are not.

    The router is asked only where no database is named; this sees what really runs. What a scope
    may read of all tenants, it may read in any database.

    Args:
        rules: Of the tenant tables that are asked for.
        access: Whose rows may be reached.
        alias: Where the statement is to run.
        reads: Whether it only reads.

    Raises:
        ScopeError: It is another tenant's database, or none of tenants.
    """
    if get_settings().tenant_database is None:
        return
    held = [rule.model for rule in rules if not (reads and access.reads_all(rule.model))]
    if not held:
        return
    label = held[0]._meta.label
    if access.tenant_id == SYSTEM:
        if may_hold_tenants(alias) is False:
            raise ScopeError(
                f"{label} is asked for in the database {alias!r}, which has no tables of tenants. "
                "Name one that has, or none for the default."
            )
        return
    right = database_of(access.tenant_id)
    if right != alias:
        raise ScopeError(
            f"{label} is asked for in the database {alias!r}, but the rows of {access.name} are in "
            f"{right!r}. Leave out using(), or, where the query begins at a model without tenant, "
            f"name it: .using({right!r})."
        )
