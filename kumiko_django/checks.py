"""System checks: what ``manage.py check`` can tell without asking any server."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from django.conf import settings as django_settings
from django.core import checks
from django.core.checks import CheckMessage, Error, register
from django.db import connections, router

from kumiko_django.broker.address import address_of
from kumiko_django.conf import Settings, get_settings
from kumiko_django.definitions.fan_out import wrapper_of
from kumiko_django.definitions.job import JobDefinition
from kumiko_django.definitions.options import retry_window_ms
from kumiko_django.definitions.registry import registry
from kumiko_django.exceptions import SettingsError
from kumiko_django.facets import checks as _of_facets  # noqa: F401  (registers its own)
from kumiko_django.handlers import checks as _of_handlers  # noqa: F401
from kumiko_django.observability import chosen
from kumiko_django.tenancy import checks as _of_requests  # noqa: F401
from kumiko_django.tenancy import checks_databases as _of_databases  # noqa: F401

TAG = "kumiko"


@register(TAG)
def check_settings(app_configs: Sequence[Any] | None = None, **_: Any) -> list[CheckMessage]:
    """``KUMIKO`` is sound and names a Redis."""
    try:
        settings = get_settings()
    except SettingsError as error:
        return [Error(str(error), hint="Correct KUMIKO in the settings module.", id="kumiko.E001")]
    return [
        *_check_redis(settings),
        *_check_tenants(settings),
        *_check_ages(settings),
        *_check_observability(),
    ]


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


def _check_observability() -> list[CheckMessage]:
    # Nothing is made here: a factory may open connections.
    return [
        Error(
            problem,
            hint="Give a callable without arguments that makes one, or its dotted path.",
            id="kumiko.E007",
        )
        for problem in chosen.problems()
    ]


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
    alias = _history_alias()
    if alias is None or connections[alias].settings_dict.get("AUTOCOMMIT", True):
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


def _history_alias() -> str | None:
    from kumiko_django.history.models import JobRun

    try:
        return router.db_for_write(JobRun)
    except SettingsError:
        return None  # told by check_databases


@register(TAG)
def check_per_tenant(app_configs: Sequence[Any] | None = None, **_: Any) -> list[CheckMessage]:
    """Jobs for every tenant know the tenants, and their children for long enough (B025)."""
    try:
        settings = get_settings()
    except SettingsError:
        return []  # told by check_settings
    found: list[CheckMessage] = []
    for definition in registry.all():
        if not definition.per_tenant:
            continue
        if not settings.tenancy_enabled:
            found.append(_no_tenants_for(definition))
        found += _check_window(definition, settings)
    return found


def _no_tenants_for(definition: JobDefinition) -> CheckMessage:
    return checks.Warning(
        f"{definition.qualified_name} runs for every tenant (per_tenant=True), and nothing says "
        "which tenants there are: it cannot be dispatched.",
        hint='Set KUMIKO["TENANTS"] to a callable that gives the ids of the active tenants.',
        id="kumiko.W003",
    )


def _check_window(definition: JobDefinition, settings: Settings) -> list[CheckMessage]:
    wrapper = wrapper_of(definition)
    window_ms = retry_window_ms(wrapper.retries, wrapper.effective_backoff)
    if window_ms < settings.completed_age * 1000:
        return []
    return [
        Error(
            f"{definition.qualified_name} runs for every tenant, and its retries may take "
            f"{math.ceil(window_ms / 1000):,} s, while completed jobs stay in the queue for "
            f"{settings.completed_age:,} s only. A fan-out that is tried again knows by them which "
            "tenants it has seen to.",
            hint='Raise KUMIKO["COMPLETED_AGE"], or give the job fewer retries or a shorter '
            "backoff.",
            id="kumiko.E006",
        )
    ]


@register(TAG)
def check_sqlite(app_configs: Sequence[Any] | None = None, **_: Any) -> list[CheckMessage]:
    """A SQLite that several processes write to begins its transactions as writers."""
    alias = _history_alias()
    if alias is None:
        return []
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
