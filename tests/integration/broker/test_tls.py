"""TLS: the certificate is checked, its options arrive, and what is wrong is told in words."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from pytest_django import Settings

from kumiko_django import BrokerUnavailable, adispatch, dispatch
from kumiko_django.broker.connection import current_address, new_async_client
from tests.app.jobs import record
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.queues import QueueState
from tests.helpers.valkey import Valkey, valkey
from tests.integration.broker.tls import TlsProxy, tls_proxy

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def ca_file(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ca") / "my+ca.pem"
    authority.cert_pem.write_to_path(path)
    return path


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    with valkey("s3cret/P@ss") as running:
        yield running


@pytest.fixture(scope="module")
def proxy(server: Valkey, authority: trustme.CA) -> Iterator[TlsProxy]:
    with tls_proxy(server.port, authority.issue_cert("localhost")) as running:
        yield running


SENDERS: dict[str, Callable[[], Any]] = {
    "sync": lambda: dispatch(record, {}, tenant_id="acme"),
    "async": lambda: asyncio.run(adispatch(record, {}, tenant_id="acme")),
}
sender = pytest.mark.parametrize("send", list(SENDERS.values()), ids=list(SENDERS))


def point_to(settings: Settings, place: str, scheme: str = "rediss") -> None:
    url = f"{scheme}://:s3cret/P@ss@{place}"
    settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": url}


def refusal(send: Callable[[], Any]) -> str:
    began = time.monotonic()
    with pytest.raises(BrokerUnavailable) as raised:
        send()
    assert time.monotonic() - began < 3
    assert "s3cret" not in str(raised.value)
    return str(raised.value)


@sender
@pytest.mark.parametrize("scheme", ["rediss", "valkeys"])
def test_with_the_authority_it_works(
    scheme: str,
    send: Callable[[], Any],
    settings: Settings,
    server: Valkey,
    proxy: TlsProxy,
    ca_file: Path,
    queue_prefix: str,
) -> None:
    """P87: ssl_ca_certs arrives, and so does the job, through a door that speaks TLS only."""
    point_to(settings, f"localhost:{proxy.port}/0?ssl_ca_certs={ca_file}", scheme)
    job_id = send().job_id
    with server.client() as client:
        assert job_id in QueueState(client, f"{queue_prefix}-worker").wait


def test_workers_check_it_too(settings: Settings, proxy: TlsProxy, ca_file: Path) -> None:
    """P87: the worker's client is built from the same address."""

    async def ping() -> bool:
        client = new_async_client(current_address(), patient=True)
        try:
            return bool(await client.ping())
        finally:
            await client.aclose()

    point_to(settings, f"localhost:{proxy.port}/0?ssl_ca_certs={ca_file}")
    assert asyncio.run(ping())
    point_to(settings, f"localhost:{proxy.port}/0")
    with pytest.raises(Exception, match="certificate verify failed"):
        asyncio.run(ping())


@sender
def test_an_unknown_authority_is_refused(
    send: Callable[[], Any], settings: Settings, proxy: TlsProxy
) -> None:
    """P87, user-needs 44: certificate checks are on without any option."""
    point_to(settings, f"localhost:{proxy.port}/0")
    told = refusal(send)
    assert "its certificate is refused" in told
    assert "ssl_ca_certs" in told


@sender
def test_the_name_is_checked(
    send: Callable[[], Any], settings: Settings, proxy: TlsProxy, ca_file: Path
) -> None:
    """P87: the certificate is for localhost, so 127.0.0.1 is somebody else."""
    point_to(settings, f"127.0.0.1:{proxy.port}/0?ssl_ca_certs={ca_file}")
    assert "its certificate is refused" in refusal(send)
    point_to(settings, f"127.0.0.1:{proxy.port}/0?ssl_ca_certs={ca_file}&ssl_check_hostname=false")
    assert send()


@sender
def test_checks_can_be_turned_off(
    send: Callable[[], Any], settings: Settings, proxy: TlsProxy
) -> None:
    """P87: as some hosted Redis wants it."""
    point_to(settings, f"localhost:{proxy.port}/0?ssl_cert_reqs=none")
    assert send()


@sender
def test_a_cache_with_options_of_tls(
    send: Callable[[], Any], settings: Settings, proxy: TlsProxy, ca_file: Path
) -> None:
    """P87: as django-redis and Django take them."""
    location = f"rediss://:s3cret%2FP%40ss@localhost:{proxy.port}/0"
    for backend, options in (
        (
            "django_redis.cache.RedisCache",
            {"CONNECTION_POOL_KWARGS": {"ssl_ca_certs": str(ca_file)}},
        ),
        ("django.core.cache.backends.redis.RedisCache", {"ssl_ca_certs": str(ca_file)}),
    ):
        cache = {"BACKEND": backend, "LOCATION": location, "OPTIONS": options}
        settings.CACHES = {**settings.CACHES, "jobs": cache}
        settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": None, "CACHE_ALIAS": "jobs"}
        assert send()


@sender
def test_a_client_certificate(
    send: Callable[[], Any],
    settings: Settings,
    server: Valkey,
    authority: trustme.CA,
    ca_file: Path,
    tmp_path: Path,
) -> None:
    """P87: ssl_certfile and ssl_keyfile arrive."""
    mine = authority.issue_cert("client")
    mine.private_key_pem.write_to_path(tmp_path / "key.pem")
    mine.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    files = f"ssl_certfile={tmp_path}/cert.pem&ssl_keyfile={tmp_path}/key.pem"
    with tls_proxy(server.port, authority.issue_cert("localhost"), authority) as proxy:
        place = f"localhost:{proxy.port}/0?ssl_ca_certs={ca_file}"
        point_to(settings, f"{place}&{files}")
        assert send()
        point_to(settings, place)
        assert "cannot be reached" in refusal(send)


@sender
def test_mixed_up_ports(
    send: Callable[[], Any], settings: Settings, server: Valkey, proxy: TlsProxy
) -> None:
    """user-needs 44: TLS to a plain port and the other way round, told apart and in time."""
    point_to(settings, f"localhost:{server.port}/0")
    assert "is it a TLS port?" in refusal(send)
    point_to(settings, f"localhost:{proxy.port}/0", "redis")
    assert "cannot be reached" in refusal(send)


@sender
def test_a_missing_authority_file(
    send: Callable[[], Any], settings: Settings, proxy: TlsProxy
) -> None:
    """user-needs 44: the message says what is missing."""
    point_to(settings, f"localhost:{proxy.port}/0?ssl_ca_certs=/no/such/ca.pem")
    assert "a file is missing: ssl_ca_certs=/no/such/ca.pem" in refusal(send)


def test_frozen_behind_tls(
    settings: Settings, proxy: TlsProxy, ca_file: Path, queue_state: QueueStateFactory
) -> None:
    """Must hold: with connections open, and also at the end of an event loop that has some."""
    point_to(settings, f"localhost:{proxy.port}/0?ssl_ca_certs={ca_file}")

    async def freeze_in_between() -> None:
        await asyncio.gather(*(adispatch(record, {}, tenant_id="acme") for _ in range(3)))
        proxy.frozen.set()
        await adispatch(record, {}, tenant_id="acme")

    dispatch(record, {}, tenant_id="acme")
    with contextlib.ExitStack() as stack:
        stack.callback(proxy.frozen.clear)
        for send in (lambda: asyncio.run(freeze_in_between()), SENDERS["sync"]):
            assert "does not answer in time" in refusal(send)
    assert SENDERS["sync"]()
    assert SENDERS["async"]()
