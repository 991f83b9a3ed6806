"""``CACHE_ALIAS``: a cache of django-redis or of Django itself, with the options that it uses."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
import redis
from django.core.cache.backends.redis import RedisCache
from pytest_django import Settings

from kumiko_django import SettingsError
from kumiko_django.broker.address import RedisAddress, address_of
from kumiko_django.conf import get_settings

pytestmark = pytest.mark.once

DJANGO_REDIS = "django_redis.cache.RedisCache"
DJANGO = "django.core.cache.backends.redis.RedisCache"


class ProjectCache(RedisCache):
    """A project's own cache class."""


def cache_address(settings: Settings, **cache: Any) -> RedisAddress:
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
        "jobs": {key.upper(): value for key, value in cache.items()},
    }
    settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": None, "CACHE_ALIAS": "jobs"}
    return address_of(get_settings())


def refusal(settings: Settings, **cache: Any) -> str:
    with pytest.raises(SettingsError) as raised:
        cache_address(settings, **cache)
    assert "hunter2" not in str(raised.value)
    return str(raised.value)


LOCATIONS: list[tuple[str, Any, dict[str, Any]]] = [
    (DJANGO_REDIS, "redis://h:1/2", {"host": "h", "port": 1, "db": 2}),
    (DJANGO_REDIS, "redis://h:1/2,redis://replica:1/2", {"host": "h", "port": 1, "db": 2}),
    (DJANGO_REDIS, ["redis://h:1/2", "redis://replica:1/2"], {"host": "h", "port": 1, "db": 2}),
    (DJANGO_REDIS, "redis://:a;b@h", {"host": "h", "password": "a;b"}),
    (DJANGO_REDIS, "unix:///r.sock?db=1", {"path": "/r.sock", "db": 1}),
    (DJANGO, "redis://h:1/2", {"host": "h", "port": 1, "db": 2}),
    (DJANGO, "redis://h:1/2;redis://replica:1/2", {"host": "h", "port": 1, "db": 2}),
    (
        DJANGO,
        ("redis://u:p/w@h", "redis://replica"),
        {"host": "h", "username": "u", "password": "p/w"},
    ),
    (f"{__name__}.ProjectCache", "redis://h", {"host": "h"}),
]


@pytest.mark.parametrize(("backend", "location", "arguments"), LOCATIONS)
def test_locations(
    backend: str, location: Any, arguments: dict[str, Any], settings: Settings
) -> None:
    """P87: the first server is the one that is written to; derived classes count too."""
    address = cache_address(settings, backend=backend, location=location)
    assert dict(address.arguments) == arguments
    assert address.setting == "CACHES['jobs']"


OPTIONS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        DJANGO_REDIS,
        {"USERNAME": "u", "PASSWORD": "hunter2", "CONNECTION_POOL_KWARGS": {"db": 5}},
        {"username": "u", "password": "hunter2", "db": 5},
    ),
    (
        DJANGO_REDIS,
        {"PASSWORD": "other", "CONNECTION_POOL_KWARGS": {"password": "hunter2"}},
        {"password": "hunter2"},
    ),
    (DJANGO_REDIS, {"PASSWORD": None, "USERNAME": ""}, {}),
    (
        DJANGO,
        {"username": "u", "password": "hunter2", "db": "5"},
        {"username": "u", "password": "hunter2", "db": 5},
    ),
]


@pytest.mark.parametrize(("backend", "options", "arguments"), OPTIONS)
def test_options_that_say_how_to_reach_redis(
    backend: str, options: dict[str, Any], arguments: dict[str, Any], settings: Settings
) -> None:
    """P87: user, password and database beside the URL arrive, as that cache reads them."""
    address = cache_address(settings, backend=backend, location="redis://h", options=options)
    assert dict(address.arguments) == {"host": "h", **arguments}


def test_the_url_counts_more_than_the_options(settings: Settings) -> None:
    """P87: as in redis-py, where both caches get their connections from."""
    for backend, options in (
        (DJANGO_REDIS, {"PASSWORD": "other", "CONNECTION_POOL_KWARGS": {"db": 5}}),
        (DJANGO, {"password": "other", "db": 5}),
    ):
        address = cache_address(
            settings, backend=backend, location="redis://:mine@h/3", options=options
        )
        assert (address.arguments["password"], address.arguments["db"]) == ("mine", 3)


TIMEOUTS: dict[str, Any] = {
    "socket_timeout": 5,
    "socket_connect_timeout": 5,
    "health_check_interval": 30,
    "retry_on_timeout": True,
    "max_connections": 7,
    "decode_responses": False,
}


@pytest.mark.parametrize(
    ("backend", "options"),
    [
        (DJANGO_REDIS, {"SOCKET_TIMEOUT": 5, "SOCKET_CONNECT_TIMEOUT": 5}),
        (DJANGO_REDIS, {"CONNECTION_POOL_KWARGS": {**TIMEOUTS, "timeout": 5}}),
        (DJANGO_REDIS, {"REDIS_CLIENT_KWARGS": {"socket_timeout": 5, "ssl": True}}),
        (DJANGO_REDIS, {"CLIENT_CLASS": "django_redis.client.DefaultClient", "PICKLE_VERSION": 4}),
        (DJANGO, {**TIMEOUTS, "pool_class": "redis.BlockingConnectionPool", "timeout": 5}),
        (DJANGO, {"parser_class": "redis.connection.DefaultParser"}),
    ],
)
def test_options_for_caches_only_are_left_alone(
    backend: str, options: dict[str, Any], settings: Settings
) -> None:
    """bullmq-python 1.1: what suits a cache, a short timeout above all, stops workers."""
    address = cache_address(settings, backend=backend, location="redis://h", options=options)
    assert dict(address.arguments) == {"host": "h"}


TLS: dict[str, Any] = {
    "ssl_cert_reqs": None,
    "ssl_ca_certs": "/ca.pem",
    "ssl_check_hostname": False,
}


@pytest.mark.parametrize(
    ("backend", "options"),
    [(DJANGO_REDIS, {"CONNECTION_POOL_KWARGS": TLS}), (DJANGO, TLS)],
)
def test_options_of_tls(backend: str, options: dict[str, Any], settings: Settings) -> None:
    """P87: None for ssl_cert_reqs is a value (no check), not nothing."""
    address = cache_address(settings, backend=backend, location="rediss://h", options=options)
    assert address.transport == "tls"
    assert dict(address.arguments) == {"host": "h", **TLS}


def test_tls_by_connection_class(settings: Settings) -> None:
    """P87: the other way in which redis-py is told to use TLS."""
    options = {"connection_class": redis.SSLConnection, "ssl_cert_reqs": ssl.CERT_REQUIRED}
    address = cache_address(
        settings,
        backend=DJANGO_REDIS,
        location="redis://h",
        options={"CONNECTION_POOL_KWARGS": options},
    )
    assert address.transport == "tls"
    assert dict(address.arguments) == {"host": "h", "ssl_cert_reqs": ssl.CERT_REQUIRED}


SENTINELS: list[dict[str, Any]] = [
    {"CLIENT_CLASS": "django_redis.client.SentinelClient"},
    {"CONNECTION_FACTORY": "django_redis.pool.SentinelConnectionFactory"},
    {"CONNECTION_POOL_CLASS": "redis.sentinel.SentinelConnectionPool"},
    {"SENTINELS": [("h", 26379)]},
]


@pytest.mark.parametrize("options", SENTINELS)
def test_sentinel_is_refused(options: dict[str, Any], settings: Settings) -> None:
    """user-needs 44: instead of taking the name of the service for that of a host."""
    told = refusal(settings, backend=DJANGO_REDIS, location="redis://primary/0", options=options)
    assert "CACHES['jobs'] goes through Sentinel" in told
    assert 'Set KUMIKO["REDIS_URL"]' in told


def test_sentinel_for_all_caches_is_refused(settings: Settings) -> None:
    settings.DJANGO_REDIS_CONNECTION_FACTORY = "django_redis.pool.SentinelConnectionFactory"
    assert "Sentinel" in refusal(settings, backend=DJANGO_REDIS, location="redis://primary/0")
    # Django's own cache knows nothing of that setting.
    cache_address(settings, backend=DJANGO, location="redis://h")


def test_a_cluster_is_refused(settings: Settings) -> None:
    """bullmq-python 3: bulk adds cannot work there."""
    options = {"CLIENT_CLASS": "project.cache.RedisClusterClient"}
    told = refusal(settings, backend=DJANGO_REDIS, location="redis://h", options=options)
    assert "Cluster" in told


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"backend": "django.core.cache.backends.locmem.LocMemCache"}, "not a Redis cache"),
    ({"backend": "no.such.module.Cache", "location": "redis://h"}, "cannot be imported"),
    ({"backend": "django.core.cache.caches", "location": "redis://h"}, "cannot be imported"),
    ({"backend": DJANGO}, "no Redis URL as its LOCATION"),
    ({"backend": DJANGO, "location": []}, "no Redis URL as its LOCATION"),
    ({"backend": DJANGO, "location": "h:6379"}, "no Redis URL as its LOCATION"),
    ({"backend": DJANGO, "location": "http://:hunter2@h"}, "no Redis URL as its LOCATION"),
    ({"backend": DJANGO, "location": "redis://:hunter2@h:port"}, "no usable Redis URL"),
    (
        {"backend": DJANGO, "location": "redis://:hunter2@h", "options": {"ssl_cert_reqs": None}},
        "Use a rediss:// address",
    ),
    (
        {"backend": DJANGO, "location": "rediss://h", "options": {"ssl_validate_ocsp": True}},
        "ssl_validate_ocsp is not supported",
    ),
    (
        {"backend": DJANGO, "location": "redis://h", "options": {"db": "first"}},
        "database must be a number",
    ),
]


@pytest.mark.parametrize(("cache", "wanted"), REFUSED)
def test_what_cannot_work_is_refused(
    cache: dict[str, Any], wanted: str, settings: Settings
) -> None:
    """P87, user-needs 44: by name, with what to do, and without the password."""
    told = refusal(settings, **cache)
    assert wanted in told
    assert "CACHES['jobs']" in told


def test_a_missing_alias_names_those_that_are_there(settings: Settings) -> None:
    settings.CACHES = {"default": {"BACKEND": DJANGO}, "sessions": {"BACKEND": DJANGO}}
    settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": None, "CACHE_ALIAS": "jobs"}
    with pytest.raises(SettingsError, match=r"'jobs' is not in CACHES .*default, sessions"):
        address_of(get_settings())


def test_without_any_address_the_message_says_what_to_set(settings: Settings) -> None:
    settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": None}
    with pytest.raises(SettingsError, match=r'Set KUMIKO\["REDIS_URL"\].*CACHE_ALIAS'):
        address_of(get_settings())
