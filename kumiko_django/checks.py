"""System checks: what ``manage.py check`` can tell without asking any server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.conf import settings as django_settings
from django.core import checks
from django.core.checks import CheckMessage, Error, register
from django.db import connections, router

from kumiko_django.broker.address import address_of
from kumiko_django.conf import Settings, get_settings
from kumiko_django.exceptions import SettingsError

TAG = "kumiko"


@register(TAG)
def check_settings(app_configs: Sequence[Any] | None = None, **_: Any) -> list[CheckMessage]:
    """``KUMIKO`` is sound and names a Redis."""
    try:
        settings = get_settings()
    except SettingsError as error:
        return [Error(str(error), hint="Correct KUMIKO in the settings module.", id="kumiko.E001")]
    return [*_check_redis(settings), *_check_tenants(settings), *_check_ages(settings)]


def _check_redis(settings: Settings) -> list[CheckMessage]:
    try:
        address_of(settings)
    except SettingsError as error:
        return [
            Error(
                str(error),
                hint='E.g. KUMIKO = {"REDIS_URL": env("REDIS_URL")}.',
                id="kumiko.E002",
            )
        ]
    return []


def _check_tenants(settings: Settings) -> list[CheckMessage]:
    if not settings.tenancy_enabled:
        return []
    try:
        settings.tenants_callable()
    except SettingsError as error:
        return [
            Error(
                str(error),
                hint="Give a callable without arguments, or its dotted path.",
                id="kumiko.E003",
            )
        ]
    return []


def _check_ages(settings: Settings) -> list[CheckMessage]:
    if settings.failed_age >= settings.completed_age:
        return []
    return [
        checks.Warning(
            "Failed jobs leave the queue before completed ones do.",
            hint='Set KUMIKO["FAILED_AGE"] to at least KUMIKO["COMPLETED_AGE"].',
            id="kumiko.W001",
        )
    ]


@register(TAG)
def check_time_zones(app_configs: Sequence[Any] | None = None, **_: Any) -> list[CheckMessage]:
    """Django works with aware times; the history has no others."""
    if django_settings.USE_TZ:
        return []
    return [
        Error(
            "USE_TZ is off: the run history cannot be written with times that have no zone.",
            hint="Set USE_TZ = True, which is Django's default.",
            id="kumiko.E004",
        )
    ]


@register(TAG)
def check_autocommit(app_configs: Sequence[Any] | None = None, **_: Any) -> list[CheckMessage]:
    """The database of the history commits what is written to it."""
    from kumiko_django.history.models import JobRun

    alias = router.db_for_write(JobRun)
    if connections[alias].settings_dict.get("AUTOCOMMIT", True):
        return []
    return [
        Error(
            f"The database {alias!r} has AUTOCOMMIT off, so Django would never commit the run "
            "history.",
            hint=(
                f'Remove "AUTOCOMMIT": False from DATABASES[{alias!r}], or route the app "kumiko" '
                "to a database that has it on (DATABASE_ROUTERS)."
            ),
            id="kumiko.E005",
        )
    ]


@register(TAG)
def check_sqlite(app_configs: Sequence[Any] | None = None, **_: Any) -> list[CheckMessage]:
    """A SQLite that several processes write to begins its transactions as writers."""
    from kumiko_django.history.models import JobRun

    alias = router.db_for_write(JobRun)
    database = connections[alias]
    if database.vendor != "sqlite":
        return []
    if str(database.settings_dict["NAME"]).startswith((":memory:", "file:")):
        return []
    mode = (database.settings_dict.get("OPTIONS") or {}).get("transaction_mode")
    if str(mode).upper() in ("IMMEDIATE", "EXCLUSIVE"):
        return []
    return [
        checks.Warning(
            f"The SQLite database {alias!r} does not begin transactions as a writer, so web "
            "processes and workers can get 'database is locked' at once.",
            hint=(
                'Add to its OPTIONS: "transaction_mode": "IMMEDIATE", "timeout": 20, '
                '"init_command": "PRAGMA journal_mode=WAL".'
            ),
            id="kumiko.W002",
        )
    ]
