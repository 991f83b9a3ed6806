"""Where Redis is: ``KUMIKO["REDIS_URL"]`` or a Redis cache of Django's, as connection arguments.

Everything that a URL or a cache can say about reaching Redis arrives (P87): user, password with any
characters, TLS and its options, unix socket, database number. What would break a worker does not:
timeouts are ours, since a five-second one silently stops delayed jobs (bullmq-python 1.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast
from urllib.parse import quote, unquote, urlsplit

from django.conf import settings as django_settings
from redis.connection import parse_url

from kumiko_django.conf import Settings
from kumiko_django.exceptions import SettingsError

_SCHEMES = {"valkey": "redis", "valkeys": "rediss"}
_OURS = frozenset(
    {
        "decode_responses", "encoding", "encoding_errors", "socket_timeout", "client_name",
        "socket_connect_timeout", "max_connections", "retry", "retry_on_timeout", "retry_on_error",
        "timeout", "connection_class", "parser_class", "lib_name", "lib_version",
        "health_check_interval",        "single_connection_client",
    }
)  # fmt: skip
_CACHE_BACKENDS = (
    "django_redis.cache.RedisCache",
    "django.core.cache.backends.redis.RedisCache",
)


@dataclass(frozen=True)
class RedisAddress:
    """How to reach Redis.

    Attributes:
        transport: ``tcp``, ``tls`` or ``unix``.
        arguments: What redis-py's connection classes take: host, port, db, username, ssl_*...
        setting: The setting that this comes from, for messages.
    """

    transport: Literal["tcp", "tls", "unix"]
    arguments: Mapping[str, Any] = field(repr=False)
    setting: str

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must appear in no message."""
        password = self.arguments.get("password")
        return (str(password),) if password else ()

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal addresses."""
        return (self.transport, *sorted((k, repr(v)) for k, v in self.arguments.items()))

    def __str__(self) -> str:
        database = self.arguments.get("db") or 0
        if self.transport == "unix":
            return f"unix://{self.arguments['path']}?db={database}"
        scheme = "rediss" if self.transport == "tls" else "redis"
        host, port = self.arguments.get("host", "localhost"), self.arguments.get("port", 6379)
        return f"{scheme}://{host}:{port}/{database}"


def address_of(settings: Settings) -> RedisAddress:
    """The address that the settings name.

    Raises:
        SettingsError: They name none, or one that cannot be used.
    """
    if settings.redis_url:
        return _from_url(settings.redis_url, 'KUMIKO["REDIS_URL"]', {})
    if settings.cache_alias:
        return _from_cache(settings.cache_alias)
    raise SettingsError(
        'Kumiko does not know where Redis is. Set KUMIKO["REDIS_URL"], e.g. '
        '"redis://localhost:6379/0", or KUMIKO["CACHE_ALIAS"] to the name of a Redis cache.'
    )


def normalise(url: str) -> str:
    """``url`` with its user and password percent-encoded and a scheme that redis-py knows.

    A password may stand in the URL as it is, ``/``, ``#`` and ``@`` included: what counts is the
    last ``@`` before the host. (redis-py cuts such a URL in the wrong place and then hangs.)
    """
    scheme, _, rest = url.partition("://")
    scheme = _SCHEMES.get(scheme, scheme)
    if scheme == "unix" or "@" not in rest:
        return f"{scheme}://{rest}"
    credentials, _, place = rest.rpartition("@")
    user, colon, password = credentials.partition(":")
    encoded = quote(unquote(user), safe="") + colon + quote(unquote(password), safe="")
    return f"{scheme}://{encoded}@{place}"


def _from_url(url: str, setting: str, extra: Mapping[str, Any]) -> RedisAddress:
    normal = normalise(url)
    try:
        arguments: dict[str, Any] = dict(cast("Mapping[str, Any]", parse_url(normal)))
        parts = urlsplit(normal)
    except ValueError as error:
        # The parser's message may repeat the URL, and with it the password.
        detail = "its port or an option is no number" if "@" in url else str(error)
        raise SettingsError(f"{setting} is not a Redis URL: {detail}.") from None
    path = parts.path.strip("/")
    if parts.scheme != "unix" and path and not path.isdigit():
        raise SettingsError(
            f"{setting}: {path!r} after the host is no database number; write e.g. /0."
        )
    merged = {**extra, **arguments}
    kept = {key: value for key, value in merged.items() if key not in _OURS}
    transport: Literal["tcp", "tls", "unix"] = "tcp"
    if parts.scheme == "unix":
        transport = "unix"
        if not kept.get("path"):
            raise SettingsError(f"{setting} names no socket; write unix:///path/to/redis.sock.")
    elif parts.scheme == "rediss":
        transport = "tls"
    return RedisAddress(transport, kept, setting)


def _from_cache(alias: str) -> RedisAddress:
    setting = f"CACHES[{alias!r}]"
    caches: Mapping[str, Any] = django_settings.CACHES
    if alias not in caches:
        raise SettingsError(
            f'KUMIKO["CACHE_ALIAS"] = {alias!r} is not in CACHES (there are: '
            f"{', '.join(sorted(caches)) or 'none'})."
        )
    cache = caches[alias]
    if cache.get("BACKEND") not in _CACHE_BACKENDS:
        raise SettingsError(
            f"{setting} is a {cache.get('BACKEND')!r}, not a Redis cache. Use one of "
            f'{" or ".join(_CACHE_BACKENDS)}, or set KUMIKO["REDIS_URL"].'
        )
    options = dict(cache.get("OPTIONS") or {})
    if "Sentinel" in f"{options.get('CLIENT_CLASS', '')}{options.get('CONNECTION_FACTORY', '')}":
        raise SettingsError(
            f"{setting} goes through Sentinel, which is not supported through a cache alias. "
            'Set KUMIKO["REDIS_URL"] to an address that follows the primary.'
        )
    return _from_url(_location(cache, setting), setting, _cache_arguments(options))


def _location(cache: Mapping[str, Any], setting: str) -> str:
    location = cache.get("LOCATION")
    if isinstance(location, str):
        location = location.replace(";", ",").split(",") if "://" in location else [location]
    # The first server is the primary; jobs are never read from a replica.
    first = location[0].strip() if location else ""
    if "://" not in first:
        raise SettingsError(f"{setting} has no Redis URL as its LOCATION (found {first!r}).")
    return str(first)


def _cache_arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of both kinds of cache that say how to reach Redis."""
    known = {"username", "password", "db", "path"}
    arguments = {
        key.lower(): value
        for key, value in options.items()
        if key.lower() in known or key.lower().startswith(("ssl_", "socket_keepalive"))
    }
    for group in ("CONNECTION_POOL_KWARGS", "REDIS_CLIENT_KWARGS"):
        arguments.update(options.get(group) or {})
    return {key: value for key, value in arguments.items() if value is not None}
