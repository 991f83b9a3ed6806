"""System checks of ``TenantRouter`` and of row-level security."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from django.conf import settings as django_settings
from django.core import checks
from django.core.checks import CheckMessage, Tags, register
from django.db import connections
from django.utils.module_loading import import_string

from kumiko_django.conf import Settings, get_settings
from kumiko_django.exceptions import SettingsError
from kumiko_django.tenancy.databases import declared_databases
from kumiko_django.tenancy.routers import TenantRouter
from kumiko_django.types.dotted import load_callable

ROUTER: Final = "kumiko_django.tenancy.routers.TenantRouter"


@register("kumiko")
def check_databases(app_configs: Sequence[Any] | None = None, **_: Any) -> list[CheckMessage]:
    """The router is there, and what it is told makes sense."""
    try:
        settings = get_settings()
    except SettingsError:
        return []  # told by check_settings
    return [*_check_router(settings), *_check_aliases(settings), *_check_security(settings)]


def _check_router(settings: Settings) -> Iterator[CheckMessage]:
    named = {
        "TENANT_DATABASE": settings.tenant_database,
        "HISTORY_DATABASE": settings.history_database,
    }
    given = [key for key, value in named.items() if value is not None]
    if given and not any(map(_is_ours, django_settings.DATABASE_ROUTERS)):
        yield checks.Error(
            f"{' and '.join(given)} have no effect: TenantRouter is not in DATABASE_ROUTERS.",
            hint=f'Set DATABASE_ROUTERS = ["{ROUTER}"], before other routers.',
            id="kumiko.E030",
        )
    if settings.tenant_database is not None and not settings.tenancy_enabled:
        yield checks.Warning(
            'KUMIKO["TENANT_DATABASE"] has no effect: KUMIKO["TENANTS"] is not set.',
            hint="Set TENANTS, or drop TENANT_DATABASE.",
            id="kumiko.W030",
        )


def _is_ours(router: Any) -> bool:
    try:
        found = import_string(router) if isinstance(router, str) else router
    except ImportError:
        return False  # Django says it itself
    return isinstance(found, TenantRouter) or (
        isinstance(found, type) and issubclass(found, TenantRouter)
    )


def _check_aliases(settings: Settings) -> Iterator[CheckMessage]:
    aliases: list[tuple[str, str]] = []
    if settings.history_database is not None:
        aliases.append(('KUMIKO["HISTORY_DATABASE"]', settings.history_database))
    try:
        if settings.tenant_database is not None:
            load_callable("TENANT_DATABASE", settings.tenant_database, "of the tenant id")
        aliases += [("TENANT_DATABASE.databases", alias) for alias in declared_databases() or ()]
    except SettingsError as error:
        yield checks.Error(
            str(error),
            hint="Give a callable of the tenant id that gives the alias of its database, or its "
            "dotted path.",
            id="kumiko.E031",
        )
    for where, alias in aliases:
        if alias not in connections.databases:
            yield checks.Error(
                f"{where} names {alias!r}, which is not in DATABASES.",
                hint=f"Give one of {', '.join(connections.databases)}.",
                id="kumiko.E032",
            )


def _check_security(settings: Settings) -> Iterator[CheckMessage]:
    if not settings.row_level_security:
        return
    on_postgres = [
        alias for alias in connections.databases if connections[alias].vendor == "postgresql"
    ]
    if not on_postgres:
        yield checks.Warning(
            'KUMIKO["ROW_LEVEL_SECURITY"] has no effect: no database is a PostgreSQL.',
            hint="Drop it, or use PostgreSQL.",
            id="kumiko.W031",
        )
    for alias in on_postgres:
        if connections[alias].settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"):
            yield checks.Warning(
                f"The database {alias!r} is behind a transaction pooler "
                "(DISABLE_SERVER_SIDE_CURSORS): the tenant is set inside transactions only, so "
                "that each statement outside of one becomes a transaction.",
                hint="Do a tenant's work inside transaction.atomic(). What cannot run in a "
                "transaction (VACUUM, say) belongs outside of any scope. Silence this check when "
                "you have seen to it.",
                id="kumiko.W032",
            )


@register(Tags.database)
def check_roles(
    app_configs: Sequence[Any] | None = None, databases: Iterable[str] | None = None, **_: Any
) -> list[CheckMessage]:
    """Policies hold for the role that Django is, which superusers and some others are not."""
    try:
        enabled = get_settings().row_level_security
    except SettingsError:
        return []
    found: list[CheckMessage] = []
    for alias in databases or () if enabled else ():
        if connections[alias].vendor != "postgresql":
            continue
        with connections[alias].cursor() as cursor:
            cursor.execute(
                "SELECT rolname FROM pg_roles "
                "WHERE rolname = current_user AND (rolsuper OR rolbypassrls)"
            )
            row = cursor.fetchone()
        if row is not None:
            found.append(_above(alias, row[0]))
    return found


def _above(alias: str, role: str) -> CheckMessage:
    return checks.Warning(
        f"Row-level security does not hold for the role {role!r} of the database {alias!r}: it is "
        "a superuser, or has BYPASSRLS.",
        hint="Let web processes and workers connect as a role without these; keep this one for "
        "migrations.",
        id="kumiko.W033",
    )
