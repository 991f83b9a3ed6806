"""A Valkey of one's own can be frozen, stopped, started again and locked with a password."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import redis
from pytest_django import Settings
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.helpers.valkey import Valkey, valkey

pytestmark = pytest.mark.once

NO_RETRY = Retry(NoBackoff(), 0)


@pytest.fixture
def server() -> Iterator[Valkey]:
    with valkey() as running:
        yield running


def ask(server: Valkey, timeout: float = 0.3) -> bool:
    client = redis.Redis.from_url(
        server.url, socket_timeout=timeout, socket_connect_timeout=timeout, retry=NO_RETRY
    )
    with client:
        return bool(client.ping())


def test_a_frozen_server_does_not_answer_and_a_thawed_one_does(server: Valkey) -> None:
    assert ask(server)
    server.freeze()
    assert server.running
    with pytest.raises(redis.TimeoutError):
        ask(server)
    server.thaw()
    assert ask(server, timeout=5)


def test_a_stopped_server_refuses_and_comes_back_on_its_port_with_its_data(server: Valkey) -> None:
    address = server.url
    with server.client() as client:
        client.set("kept", "yes")
    server.stop()
    with pytest.raises(redis.ConnectionError):
        ask(server)
    server.start()
    assert server.url == address
    with server.client() as client:
        assert client.get("kept") == "yes"


def test_a_server_can_come_back_empty(server: Valkey) -> None:
    with server.client() as client:
        client.set("kept", "no")
    server.stop()
    server.start(empty=True)
    with server.client() as client:
        assert client.keys() == []


def test_a_password_with_special_characters_is_asked_for() -> None:
    with valkey(password="p@ss/w:rd?#%") as server:
        assert ask(server)
        with (
            redis.Redis(port=server.port, retry=NO_RETRY) as nobody,
            pytest.raises(redis.AuthenticationError),
        ):
            nobody.ping()


def test_closing_a_frozen_server_leaves_no_process() -> None:
    with valkey() as server:
        pid = server.pid
        server.freeze()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_fixture_points_the_settings_to_the_own_server(
    own_valkey: Valkey, settings: Settings, redis_url: str
) -> None:
    assert settings.KUMIKO["REDIS_URL"] == own_valkey.url != redis_url
