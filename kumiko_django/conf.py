"""The ``KUMIKO`` setting as one frozen, typed object.

It is read when first asked for and again after ``setting_changed``, so ``override_settings`` works.
What only other settings can decide (is the cache alias there, can ``TENANTS`` be imported) is told
by the system checks; what is wrong in itself is refused here.
"""

from __future__ import annotations

import datetime as dt
import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, Literal, TypeAlias, cast
from uuid import UUID

from django.conf import settings as django_settings
from django.core.signals import setting_changed

from kumiko_django.exceptions import SettingsError
from kumiko_django.types.dotted import load_callable
from kumiko_django.types.setting_values import (
    callable_value,
    choice,
    maker,
    positive_int,
    shown,
    tenant_value,
    true_or_false,
)

TenantsCallable: TypeAlias = Callable[[], Iterable[Any]]
Factory: TypeAlias = Callable[[Any], Any] | str | Literal[False]
"""Makes a facet for a run, given a ``FacetRequest``; the dotted path; or False for none."""

_DAY = 24 * 60 * 60
_MAX_SECONDS = 1_000_000_000
"""About 31 years: what clocks and the queue can hold; infinity and NaN are beyond it."""
_NONE_HAS_A_MEANING = frozenset({"HISTORY_AGE", "AUDIT_AGE"})
"""Keys for which None is a value; for the others it is the same as not set (B024)."""
METER_METHODS = ("count", "gauge", "observe")
TRACER_METHODS = ("span", "current")
_PREFIX = re.compile(r"[A-Za-z0-9_.{}-]+")


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings with their defaults; each field is the upper-case key in ``KUMIKO``.

    Attributes:
        redis_url: ``REDIS_URL``: ``redis://``, ``rediss://``, ``valkey://``, ``valkeys://`` or
            ``unix://``; give this or ``CACHE_ALIAS``.
        cache_alias: ``CACHE_ALIAS``: name of a Redis cache in ``CACHES`` whose location and
            options are used.
        queue_prefix: ``QUEUE_PREFIX``: queues are called ``<prefix>-<lane>`` (B031); separates
            deployments that share one Redis (B032).
        key_prefix: ``KEY_PREFIX``: what BullMQ puts before every key.
        completed_age: ``COMPLETED_AGE``: seconds that completed jobs stay in the queue (B090).
        failed_age: ``FAILED_AGE``: seconds that failed jobs stay in the queue (B090).
        history_age: ``HISTORY_AGE``: seconds that ended runs stay in the history, None for ever.
        audit_age: ``AUDIT_AGE``: the same for uses of escape hatches.
        lock_seconds: ``LOCK_SECONDS``: length of queue locks; a dead worker's jobs are picked up
            by others after one to two of these.
        stall_budget: ``STALL_BUDGET``: workers that a job may lose before it is quarantined.
        unknown_job_age: ``UNKNOWN_JOB_AGE``: seconds that a job whose name no worker knows is put
            back before it fails.
        grace: ``GRACE``: seconds that a stopping worker lets running jobs finish.
        concurrency: ``CONCURRENCY``: jobs that one worker process runs at a time (P35).
        max_payload_bytes: ``MAX_PAYLOAD_BYTES``: largest encoded job data.
        tenants: ``TENANTS``: callable (or dotted path to one) that gives the active tenant ids;
            turns tenancy on.
        request_tenant: ``REQUEST_TENANT``: callable of the request (or its path) that gives the
            tenant of a request, or None; for ``RequestScopeMiddleware``.
        files: ``FILES``: factory of ``ctx.files`` (or its path); False for no such facet.
        files_storage: ``FILES_STORAGE``: the alias in ``STORAGES`` that ``ctx.files`` works on.
        derivatives: ``DERIVATIVES``: functions by variant, or the factory of ``ctx.derivatives``.
        notify: ``NOTIFY``: factory of ``ctx.notify``; False for no such facet.
        config: ``CONFIG``: values by key, or the factory of ``ctx.config``.
        secrets: ``SECRETS``: factory of ``ctx.secrets``; False for no such facet.
        time_zone: ``TIME_ZONE``: callable of the tenant id that gives its time zone.
        meter: ``METER``: where metrics go, or the factory of that (or the path of either).
        tracer: ``TRACER``: where spans go; likewise.
        system_tenant_value: ``SYSTEM_TENANT_VALUE``: what rows of SYSTEM have in a tenant column.
        roles: ``ROLES``: callable of a user and a tenant id that gives the user's roles there, or
            None where the user is no member; by default the names of the user's groups.
        jobs_write_as: ``JOBS_WRITE_AS``: as whom ``ctx.write`` acts: ``system`` or ``caller``.
        tenant_database: ``TENANT_DATABASE``: callable of the tenant id (or its path) that gives the
            alias of the database with its rows; for ``TenantRouter``.
        history_database: ``HISTORY_DATABASE``: alias of the database with our tables; likewise.
        row_level_security: ``ROW_LEVEL_SECURITY``: connections carry the tenant, for policies.
    """

    redis_url: str | None = field(default=None, repr=False)  # it may have a password
    cache_alias: str | None = None
    queue_prefix: str = "kumiko-jobs"
    key_prefix: str = "bull"
    completed_age: int = _DAY
    failed_age: int = 7 * _DAY
    history_age: int | None = 30 * _DAY
    audit_age: int | None = 365 * _DAY
    lock_seconds: float = 30.0
    stall_budget: int = 10
    unknown_job_age: float = 3_600.0
    grace: float = 25.0
    concurrency: int = 5
    max_payload_bytes: int = 512 * 1024
    tenants: TenantsCallable | str | None = None
    request_tenant: Callable[[Any], Any] | str | None = None
    files: Factory | None = None
    files_storage: str = "default"
    derivatives: Mapping[str, Any] | Factory | None = None
    notify: Factory | None = None
    config: Mapping[str, Any] | Factory | None = field(default=None, repr=False)  # likewise
    secrets: Factory | None = None
    time_zone: Callable[[str], Any] | str | None = None
    meter: Any = field(default=None, repr=False)
    tracer: Any = field(default=None, repr=False)
    system_tenant_value: str | int | UUID | None = None
    roles: Callable[[Any, str], Any] | str | None = None
    jobs_write_as: str = "system"
    tenant_database: Callable[[str], str] | str | None = None
    history_database: str | None = None
    row_level_security: bool = False

    @property
    def tenancy_enabled(self) -> bool:
        """Whether work belongs to tenants; without it everything belongs to ``SYSTEM``."""
        return self.tenants is not None

    def active_tenants(self) -> list[str]:
        """The active tenant ids as text, in the order in which ``TENANTS`` gives them.

        Raises:
            SettingsError: ``TENANTS`` cannot be imported, is not callable or gives no ids.
        """
        if self.tenants is None:
            return []
        given: Any = self.tenants_callable()()
        if isinstance(given, str | bytes) or not isinstance(given, Iterable):
            raise SettingsError(
                f'KUMIKO["TENANTS"] must give a list of the active tenant ids, not {shown(given)}.'
            )
        return [str(tenant) for tenant in given]

    def tenants_callable(self) -> TenantsCallable:
        """``TENANTS`` as a callable, imported where it is a dotted path.

        Raises:
            SettingsError: It cannot be imported or is not callable without arguments.
        """
        return load_callable("TENANTS", self.tenants, "without arguments", arguments=0)


def get_settings() -> Settings:
    """The current settings.

    Raises:
        SettingsError: ``KUMIKO`` has an unknown key or a bad value.
    """
    return _build()


@lru_cache(maxsize=1)
def _build() -> Settings:
    return build(getattr(django_settings, "KUMIKO", {}))


def build(raw: object) -> Settings:
    """Turn a ``KUMIKO`` mapping into :class:`Settings`.

    Raises:
        SettingsError: It is no mapping, has an unknown key, or a bad value.
    """
    if not isinstance(raw, Mapping):
        raise SettingsError(f"KUMIKO must be a dict, not {type(raw).__name__}.")
    known = {entry.name.upper(): entry.name for entry in fields(Settings)}
    values: dict[str, Any] = {}
    for key, value in raw.items():
        if key not in known:
            raise SettingsError(_unknown_key(key, list(known)))
        if value is not None:
            values[known[key]] = _VALIDATORS[key](key, value)
        elif key in _NONE_HAS_A_MEANING:
            values[known[key]] = None
    if "redis_url" in values and "cache_alias" in values:
        raise SettingsError('Give KUMIKO["REDIS_URL"] or KUMIKO["CACHE_ALIAS"], not both.')
    return Settings(**values)


def _unknown_key(key: object, known: list[str]) -> str:
    near = difflib.get_close_matches(str(key).upper(), known, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else f" Known keys: {', '.join(sorted(known))}."
    return f"KUMIKO has the unknown key {key!r}.{hint}"


def _text(key: str, value: object) -> str:
    if not isinstance(value, str):
        # Without the value: bytes of a URL would show their password.
        raise SettingsError(f'KUMIKO["{key}"] must be text, not {type(value).__name__}.')
    if not value.strip():
        raise SettingsError(f'KUMIKO["{key}"] must not be empty; leave it out, or set it.')
    return value


def _redis_url(key: str, value: object) -> str:
    text = _text(key, value)
    schemes = ("redis://", "rediss://", "valkey://", "valkeys://", "unix://")
    if not text.startswith(schemes):
        scheme, separator, _ = text.partition("://")
        found = f"found {scheme!r}" if separator else "it has no scheme"
        raise SettingsError(
            f'KUMIKO["{key}"] must begin with one of {", ".join(schemes)} ({found}).'
        )
    return text


def _prefix(key: str, value: object) -> str:
    # BullMQ for Node refuses queue names with a colon, and keys are split at colons.
    text = _text(key, value)
    if not _PREFIX.fullmatch(text):
        raise SettingsError(
            f'KUMIKO["{key}"] = {value!r} may have letters, digits, '
            "'.', '_', '-' and braces only."
        )
    return text


def _age(key: str, value: object) -> int:
    seconds = value.total_seconds() if isinstance(value, dt.timedelta) else value
    if isinstance(seconds, float) and seconds.is_integer():
        seconds = int(seconds)
    is_whole = isinstance(seconds, int) and not isinstance(seconds, bool)
    if not is_whole or not 0 < cast("int", seconds) <= _MAX_SECONDS:
        raise SettingsError(
            f'KUMIKO["{key}"] must be a whole number of seconds above 0 (at most '
            f"{_MAX_SECONDS:,}), or a timedelta, not {shown(value)}."
        )
    return cast("int", seconds)


def _seconds(minimum: float) -> Callable[[str, object], float]:
    def validate(key: str, value: object) -> float:
        seconds = value.total_seconds() if isinstance(value, dt.timedelta) else value
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not is_number or not minimum <= cast("float", seconds) <= _MAX_SECONDS:
            raise SettingsError(
                f'KUMIKO["{key}"] must be seconds (a number or a timedelta) of at least '
                f"{minimum:g} and at most {_MAX_SECONDS:,}, not {shown(value)}."
            )
        return float(cast("float", seconds))

    return validate


_VALIDATORS: dict[str, Callable[[str, object], Any]] = {
    "REDIS_URL": _redis_url,
    "CACHE_ALIAS": _text,
    "QUEUE_PREFIX": _prefix,
    "KEY_PREFIX": _prefix,
    "COMPLETED_AGE": _age,
    "FAILED_AGE": _age,
    "HISTORY_AGE": _age,
    "AUDIT_AGE": _age,
    "LOCK_SECONDS": _seconds(1.0),
    "STALL_BUDGET": positive_int,
    "UNKNOWN_JOB_AGE": _seconds(0.0),
    "GRACE": _seconds(0.0),
    "CONCURRENCY": positive_int,
    "MAX_PAYLOAD_BYTES": positive_int,
    "TENANTS": callable_value("that gives the active tenant ids"),
    "REQUEST_TENANT": callable_value("of the request that gives its tenant id"),
    "FILES": callable_value("of a FacetRequest that makes the facet", or_false=True),
    "FILES_STORAGE": _text,
    "DERIVATIVES": callable_value("of a FacetRequest that makes the facet", or_mapping=True),
    "NOTIFY": callable_value("of a FacetRequest that makes the facet", or_false=True),
    "CONFIG": callable_value("of a FacetRequest that makes the facet", or_mapping=True),
    "SECRETS": callable_value("of a FacetRequest that makes the facet", or_false=True),
    "TIME_ZONE": callable_value("of the tenant id that gives its time zone"),
    "METER": maker(*METER_METHODS),
    "TRACER": maker(*TRACER_METHODS),
    "SYSTEM_TENANT_VALUE": tenant_value,
    "ROLES": callable_value("of a user and a tenant id that gives the user's roles"),
    "JOBS_WRITE_AS": choice("system", "caller"),
    "TENANT_DATABASE": callable_value("of the tenant id that gives the alias of its database"),
    "HISTORY_DATABASE": _text,
    "ROW_LEVEL_SECURITY": true_or_false,
}


def _forget(*, setting: str, **_: object) -> None:
    if setting == "KUMIKO":
        _build.cache_clear()


setting_changed.connect(_forget, dispatch_uid="kumiko_django.conf.forget")
