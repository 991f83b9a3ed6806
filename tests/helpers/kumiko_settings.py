"""The ``KUMIKO`` setting as environment variables, there and back.

``tests.settings`` reads it (``from_environment``), the process helpers write it
(``to_environment``), so that a child process runs with what a test has overridden. Each key has a
variable of its own: ``KUMIKO_QUEUE_PREFIX``, ``KUMIKO_LOCK_SECONDS`` and so on; ``REDIS_URL`` has
its usual name. ``KUMIKO_TENANCY=off`` leaves ``TENANTS`` out.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any

FALLBACK_REDIS_URL = "redis://127.0.0.1:6379/0"
DEFAULT_TENANTS = "tests.app.tenants.active_tenants"
DEFAULT_LOCK_SECONDS = 2.0
FOR_EVER = "for-ever"
"""``HISTORY_AGE`` where it is None, which is not the same as not set."""

_READERS: dict[str, Callable[[str], Any]] = {
    "CACHE_ALIAS": str,
    "QUEUE_PREFIX": str,
    "KEY_PREFIX": str,
    "COMPLETED_AGE": int,
    "FAILED_AGE": int,
    "HISTORY_AGE": lambda text: None if text == FOR_EVER else int(text),
    "LOCK_SECONDS": float,
    "GRACE": float,
    "STALL_BUDGET": int,
    "UNKNOWN_JOB_AGE": float,
    "CONCURRENCY": int,
    "MAX_PAYLOAD_BYTES": int,
    "TENANTS": str,
    "TENANT_DATABASE": str,
    "HISTORY_DATABASE": str,
    "ROW_LEVEL_SECURITY": lambda text: text == "True",
    "METER": str,
    "TRACER": str,
}


def from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Build ``KUMIKO``; an empty variable counts as not set."""
    settings: dict[str, Any] = {
        "LOCK_SECONDS": DEFAULT_LOCK_SECONDS,
        "TENANTS": DEFAULT_TENANTS,
    }
    for key, read in _READERS.items():
        if text := environment.get(f"KUMIKO_{key}"):
            settings[key] = read(text)
    if environment.get("KUMIKO_TENANCY") == "off":
        del settings["TENANTS"]
    if "CACHE_ALIAS" not in settings:
        settings["REDIS_URL"] = environment.get("REDIS_URL") or FALLBACK_REDIS_URL
    return settings


def to_environment(settings: Mapping[str, Any]) -> dict[str, str]:
    """Write ``KUMIKO`` as variables; keys that are not set become empty ones."""
    environment = {f"KUMIKO_{key}": "" for key in _READERS}
    environment["KUMIKO_TENANCY"] = "on" if settings.get("TENANTS") else "off"
    for key, value in settings.items():
        if value is None and key == "HISTORY_AGE":
            value = FOR_EVER
        if value is None:
            continue
        if key == "REDIS_URL":
            environment["REDIS_URL"] = value
        elif key in _READERS:
            environment[f"KUMIKO_{key}"] = _text(value)
        else:
            raise AssertionError(f"tests/helpers/kumiko_settings.py does not know KUMIKO[{key!r}]")
    return environment


def _text(value: Any) -> str:
    if isinstance(value, dt.timedelta):
        seconds = value.total_seconds()
        return str(int(seconds) if seconds.is_integer() else seconds)
    if callable(value):
        return f"{value.__module__}.{value.__qualname__}"
    return str(value)
