"""Each form of an address really reaches its Redis: the job lands there, in that database."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import redis
from django.core.cache import caches
from pytest_django import Settings

from kumiko_django import BrokerUnavailable, adispatch, dispatch, dispatch_many
from kumiko_django.broker.connection import current_address, new_async_client
from tests.app.jobs import record
from tests.helpers.queues import QueueState
from tests.helpers.valkey import Valkey, valkey

pytestmark = pytest.mark.once

PASSWORD = "p/w@#?:% ä+ß"
DJANGO_REDIS = "django_redis.cache.RedisCache"
DJANGO = "django.core.cache.backends.redis.RedisCache"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    """A Valkey with a password, a second user and a unix socket."""
    path = tmp_path_factory.mktemp("sock") / "valkey.sock"
    with valkey(PASSWORD, options={"unixsocket": str(path)}) as running:
        with running.client() as client:
            client.execute_command("ACL", "SETUSER", "us/er@x", "on", f">{PASSWORD}", "~*", "+@all")
        running.options["unixsocket"] = str(path)
        yield running


def arrive(server: Valkey, prefix: str, database: int) -> None:
    """Dispatch on every way there is, and look for the jobs in that database only."""
    ids = [dispatch(record, {}, tenant_id="acme").job_id]
    ids += [sent.job_id for sent in dispatch_many(record, [{}, {}], tenant_id="acme")]
    ids.append(asyncio.run(adispatch(record, {}, tenant_id="acme")).job_id)

    async def as_a_worker() -> None:
        client = new_async_client(current_address(), patient=True)
        assert await client.ping()
        assert await client.llen(f"bull:{prefix}-worker:wait") == len(ids)
        await client.aclose()

    asyncio.run(as_a_worker())
    for number in range(16):
        with redis.Redis(
            port=server.port, password=PASSWORD, db=number, decode_responses=True
        ) as client:
            state = QueueState(client, f"{prefix}-worker")
            assert state.wait == (ids if number == database else [])
            client.flushdb()


def raw(server: Valkey) -> str:
    return f"redis://:{PASSWORD}@127.0.0.1:{server.port}"


def encoded(server: Valkey, user: str = "") -> str:
    return f"redis://{quote(user, safe='')}:{quote(PASSWORD, safe='')}@127.0.0.1:{server.port}"


URLS: dict[str, tuple[Callable[[Valkey], str], int]] = {
    "password as it is": (lambda server: raw(server), 0),
    "password encoded": (lambda server: encoded(server), 0),
    "database in the path": (lambda server: f"{raw(server)}/3", 3),
    "database as an option": (lambda server: f"{raw(server)}?db=4", 4),
    "user": (lambda server: f"{encoded(server, 'us/er@x')}/5", 5),
    "user as it is": (lambda server: f"redis://us/er@x:{PASSWORD}@127.0.0.1:{server.port}/5", 5),
    "the default user by name": (lambda server: f"{encoded(server, 'default')}/5", 5),
    "password as an option": (
        lambda server: f"redis://127.0.0.1:{server.port}/1?password={quote(PASSWORD, safe='')}",
        1,
    ),
    "valkey": (lambda server: raw(server).replace("redis", "valkey", 1) + "/6", 6),
    "a name": (lambda server: raw(server).replace("127.0.0.1", "localhost") + "/6", 6),
    "options of a cache": (
        lambda server: f"{raw(server)}/7?socket_timeout=0.000001&max_connections=1",
        7,
    ),
    "unix socket": (
        lambda server: f"unix://{server.options['unixsocket']}?db=8&password={quote(PASSWORD)}",
        8,
    ),
    "unix socket with user": (
        lambda server: f"unix://us/er@x:{PASSWORD}@{server.options['unixsocket']}?db=8",
        8,
    ),
}


@pytest.mark.parametrize("form", list(URLS))
def test_urls(form: str, server: Valkey, settings: Settings, queue_prefix: str) -> None:
    """B019, P87, user-needs 44: also where the package's own client hangs (bullmq-python 3)."""
    url, database = URLS[form]
    settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": url(server)}
    arrive(server, queue_prefix, database)


CACHES: dict[str, Callable[[Valkey], dict[str, Any]]] = {
    "django-redis, all in the url": lambda server: {
        "BACKEND": DJANGO_REDIS,
        "LOCATION": f"{encoded(server)}/9",
    },
    "django-redis, options": lambda server: {
        "BACKEND": DJANGO_REDIS,
        "LOCATION": [f"redis://127.0.0.1:{server.port}", "redis://127.0.0.1:1"],
        "OPTIONS": {
            "USERNAME": "us/er@x",
            "PASSWORD": PASSWORD,
            "SOCKET_TIMEOUT": 5,
            "CONNECTION_POOL_KWARGS": {"db": 9, "max_connections": 50},
        },
    },
    "Django's own, all in the url": lambda server: {
        "BACKEND": DJANGO,
        "LOCATION": f"{encoded(server)}/9",
    },
    "Django's own, options": lambda server: {
        "BACKEND": DJANGO,
        "LOCATION": f"redis://127.0.0.1:{server.port}",
        "OPTIONS": {"db": "9", "username": "us/er@x", "password": PASSWORD, "socket_timeout": 5},
    },
}


@pytest.mark.parametrize("form", list(CACHES))
def test_caches(form: str, server: Valkey, settings: Settings, queue_prefix: str) -> None:
    """P87: jobs go to the very database that the cache uses."""
    settings.CACHES = {**settings.CACHES, "jobs": CACHES[form](server)}
    settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": None, "CACHE_ALIAS": "jobs"}
    caches["jobs"].set("probe", "here")
    with redis.Redis(port=server.port, password=PASSWORD, db=9) as client:
        assert client.exists(":1:probe")
    caches["jobs"].close()
    arrive(server, queue_prefix, 9)


def has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


def test_ipv6(settings: Settings, queue_prefix: str) -> None:
    """P87: an address in brackets; on a machine without IPv6 it is at least what is tried."""
    with valkey(PASSWORD, options={"bind": "127.0.0.1 -::1"}) as server:
        url = raw(server).replace("127.0.0.1", "[::1]") + "/2"
        settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": url}
        if has_ipv6():
            arrive(server, queue_prefix, 2)
        else:
            with pytest.raises(BrokerUnavailable, match=r"redis://\[::1\]:\d+/2 "):
                dispatch(record, {}, tenant_id="acme")


def test_a_user_of_one_prefix_only(settings: Settings, queue_prefix: str, tmp_path: Path) -> None:
    """bullmq-python 3 (ACL): ~bull:<prefix>* is enough, without dangerous and admin commands."""
    with valkey(PASSWORD) as server, server.client() as admin:
        rights = (f"~bull:{queue_prefix}*", "+@all", "-@dangerous", "-@admin")
        admin.execute_command("ACL", "SETUSER", "jobs", "on", ">pw", *rights)
        url = f"redis://jobs:pw@127.0.0.1:{server.port}/1"
        settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": url}
        arrive(server, queue_prefix, 1)
        admin.execute_command("ACL", "SETUSER", "jobs", "resetkeys", "~other:*")
        senders: list[Callable[[], Any]] = [
            lambda: dispatch(record, {}, tenant_id="acme"),
            lambda: asyncio.run(adispatch(record, {}, tenant_id="acme")),
        ]
        for send in senders:
            with pytest.raises(BrokerUnavailable, match=r"does not let this user do it.*ACL"):
                send()
