"""Where Redis is: ``KUMIKO["REDIS_URL"]``, or a Redis cache in ``CACHES``, read as it reads itself.

Caches of django-redis and of Django itself are known, and classes that are derived from them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import redis
from django.conf import settings as django_settings
from django.utils.module_loading import import_string

from kumiko_django.broker.redis_url import (
    TRANSPORTS,
    RedisAddress,
    Transport,
    checked,
    from_url,
)
from kumiko_django.conf import Settings
from kumiko_django.exceptions import SettingsError

__all__ = ["RedisAddress", "address_of"]

DJANGO_REDIS: Final = "django_redis.cache.RedisCache"
DJANGO: Final = "django.core.cache.backends.redis.RedisCache"

_REACH: Final = frozenset(
    {"db", "host", "port", "path", "username", "password", "credential_provider",
     "socket_keepalive", "socket_keepalive_options"}
)  # fmt: skip


def address_of(settings: Settings) -> RedisAddress:
    """The address that the settings name.

    Raises:
        SettingsError: They name none, or one that cannot be used.
    """
    if settings.redis_url:
        return from_url(settings.redis_url, 'KUMIKO["REDIS_URL"]')
    if settings.cache_alias:
        return _from_cache(settings.cache_alias)
    raise SettingsError(
        'Kumiko does not know where Redis is. Set KUMIKO["REDIS_URL"], e.g. '
        '"redis://localhost:6379/0", or KUMIKO["CACHE_ALIAS"] to the name of a Redis cache.'
    )


def _from_cache(alias: str) -> RedisAddress:
    setting = f"CACHES[{alias!r}]"
    caches: Mapping[str, Any] = django_settings.CACHES
    if alias not in caches:
        raise SettingsError(
            f'KUMIKO["CACHE_ALIAS"] = {alias!r} is not in CACHES (there are: '
            f"{', '.join(sorted(caches)) or 'none'})."
        )
    cache = caches[alias]
    kind = _kind(str(cache.get("BACKEND")), setting)
    options = dict(cache.get("OPTIONS") or {})
    _refuse_topologies(options, kind, setting)
    options = _of_django_redis(options) if kind == DJANGO_REDIS else options
    url = from_url(_location(cache, kind, setting), setting)
    transport: Transport = url.transport
    connection_class = options.get("connection_class")
    if isinstance(connection_class, type) and issubclass(connection_class, redis.SSLConnection):
        transport = "tls"
    reach = {
        name: value
        for name, value in options.items()
        if (value is not None and name in _REACH) or name.startswith("ssl_")
    }
    # As in redis-py's from_url: what the URL says counts more than what stands beside it.
    return checked(transport, {**reach, **url.arguments}, setting)


def _kind(backend: str, setting: str) -> str:
    """Which of the two kinds of cache a backend is; projects and add-ons derive their own."""
    try:
        classes = import_string(backend).__mro__
    except (ImportError, AttributeError) as error:
        told = f"{setting}: the BACKEND {backend!r} cannot be imported: {error}."
        raise SettingsError(told) from error
    for base in classes:
        name = f"{base.__module__}.{base.__qualname__}"
        if name in (DJANGO_REDIS, DJANGO):
            return name
    raise SettingsError(
        f"{setting} is a {backend!r}, not a Redis cache. Use one of {DJANGO_REDIS} or {DJANGO}, "
        'or set KUMIKO["REDIS_URL"].'
    )


def _refuse_topologies(options: Mapping[str, Any], kind: str, setting: str) -> None:
    classes = [
        options.get(name)
        for name in ("CLIENT_CLASS", "CONNECTION_FACTORY", "CONNECTION_POOL_CLASS", "pool_class")
    ]
    if kind == DJANGO_REDIS and not options.get("CONNECTION_FACTORY"):
        classes.append(getattr(django_settings, "DJANGO_REDIS_CONNECTION_FACTORY", None))
    names = " ".join(map(str, classes)).lower()
    if "sentinel" in names or options.get("SENTINELS"):
        raise SettingsError(
            f"{setting} goes through Sentinel, which is not supported through a cache alias. "
            'Set KUMIKO["REDIS_URL"] to an address that follows the primary.'
        )
    if "cluster" in names:
        raise SettingsError(
            f"{setting} is a Redis Cluster, which is not supported. "
            'Set KUMIKO["REDIS_URL"] to a standalone Redis.'
        )


def _of_django_redis(options: Mapping[str, Any]) -> dict[str, Any]:
    named = {name: options.get(name.upper()) or None for name in ("username", "password")}
    return {**named, **(options.get("CONNECTION_POOL_KWARGS") or {})}


def _location(cache: Mapping[str, Any], kind: str, setting: str) -> str:
    location = cache.get("LOCATION")
    if isinstance(location, str):
        location = re.split("," if kind == DJANGO_REDIS else "[;,]", location)
    # The first server is the primary; jobs are never read from a replica.
    first = str(next(iter(location or ()), "")).strip()
    if first.partition("://")[0] not in TRANSPORTS or "://" not in first:
        raise SettingsError(f"{setting} has no Redis URL as its LOCATION.")
    return first
