"""Redis cannot be used: every entry point says so by name within three seconds, without secrets."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from pytest_django import Settings

from kumiko_django import BrokerUnavailable, adispatch, adispatch_many, dispatch, dispatch_many
from tests.app.jobs import record
from tests.helpers.valkey import valkey
from tests.integration.broker import servers

PASSWORD = "s3cret/P@ss"
LIMIT_SECONDS = 3.0

pytestmark = pytest.mark.once


@dataclass(frozen=True)
class Answer:
    entry: str
    seconds: float
    error: Exception | None


Entry = Callable[[], Any]
PAYLOADS = [{"n": number} for number in range(600)]
ENTRIES: dict[str, Entry] = {
    "dispatch": lambda: dispatch(record, {}, tenant_id="acme"),
    "adispatch": lambda: asyncio.run(adispatch(record, {}, tenant_id="acme")),
    "adispatch in sync code": lambda: async_to_sync(adispatch)(record, {}, tenant_id="acme"),
    "dispatch_many": lambda: dispatch_many(record, PAYLOADS, tenant_id="acme"),
    "adispatch_many": lambda: asyncio.run(adispatch_many(record, PAYLOADS, tenant_id="acme")),
    "delayed": lambda: record.dispatch({}, tenant_id="acme", delay=60, priority="low"),
}


def ask(entry: str, answers: list[Answer]) -> None:
    error: Exception | None = None
    began = time.monotonic()
    try:
        ENTRIES[entry]()
    except Exception as raised:  # noqa: BLE001 - it is what the test looks at
        error = raised
    answers.append(Answer(entry, time.monotonic() - began, error))


def ask_all() -> list[Answer]:
    """Use every entry point, all at the same time, each in a thread of its own."""
    answers: list[Answer] = []
    threads = [threading.Thread(target=ask, args=(entry, answers)) for entry in ENTRIES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(answers) == len(ENTRIES), f"still waiting; answered have only {answers}"
    return answers


def check(answers: list[Answer], wanted: str) -> None:
    for answer in answers:
        assert isinstance(answer.error, BrokerUnavailable), answer
        text = str(answer.error)
        assert 'KUMIKO["REDIS_URL"]' in text, answer
        assert re.search(wanted, text), answer
        assert PASSWORD not in text, answer
        assert "s3cret" not in repr(answer.error.__cause__), answer
        assert answer.seconds < LIMIT_SECONDS, answer


def point_to(settings: Settings, place: str, scheme: str = "redis") -> None:
    url = f"{scheme}://:{PASSWORD}@{place}"
    settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": url, "MAX_PAYLOAD_BYTES": 64 * 2**20}


SERVERS: dict[str, tuple[Callable[[], contextlib.AbstractContextManager[int]], str]] = {
    "refused": (servers.refused, "cannot be reached: .*refused"),
    "silent": (servers.silent, "does not answer in time"),
    "full backlog": (servers.full_backlog, "does not answer in time"),
    "breaks off": (lambda: servers.server(servers.breaks_off), "cannot be reached"),
    "closes at once": (lambda: servers.server(servers.accepts_and_closes), "cannot be reached"),
    "trickles": (lambda: servers.server(servers.trickles), "does not answer in time"),
    "late": (lambda: servers.server(servers.answers_late), "does not answer in time"),
    "http": (lambda: servers.server(servers.speaks_http), "does not speak Redis"),
}


@pytest.mark.parametrize("kind", list(SERVERS))
def test_a_server_that_is_none(kind: str, settings: Settings) -> None:
    """Must hold, bullmq-python 1.5, user-needs 5: refused, silent, slow or broken off."""
    start, wanted = SERVERS[kind]
    with start() as port:
        point_to(settings, f"127.0.0.1:{port}/0")
        check(ask_all(), wanted)


@pytest.mark.parametrize("kind", ["silent", "http", "refused", "trickles"])
def test_a_tls_server_that_is_none(kind: str, settings: Settings) -> None:
    """P87, user-needs 5: the handshake is bounded too."""
    start, _ = SERVERS[kind]
    with start() as port:
        point_to(settings, f"127.0.0.1:{port}/0", scheme="rediss")
        check(ask_all(), "cannot be reached|does not answer in time")


def test_a_frozen_server(settings: Settings) -> None:
    """Must hold: a server that is stopped (SIGSTOP) while connections to it are open."""
    with valkey(PASSWORD) as server:
        settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": server.url}
        assert {answer.error for answer in ask_all()} == {None}
        server.freeze()
        check(ask_all(), "does not answer in time")
        server.thaw()
        assert {answer.error for answer in ask_all()} == {None}, "the next dispatch works at once"


CREDENTIALS = {
    "wrong password": (f":{PASSWORD}x@", "user is disabled. Check user and password."),
    "no password": ("", "refuses the credentials"),
    "unknown user": (f"nobody:{PASSWORD}@", "refuses the credentials"),
    "forgotten colon": ("nobody@", "A password stands after a colon"),
}


@pytest.mark.parametrize("kind", list(CREDENTIALS))
def test_wrong_credentials(kind: str, settings: Settings) -> None:
    """Must hold, bullmq-python 1.5: the package's own client would try for minutes."""
    credentials, wanted = CREDENTIALS[kind]
    with valkey(PASSWORD) as server:
        url = f"redis://{credentials}127.0.0.1:{server.port}/0"
        settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": url}
        check(ask_all(), wanted)
        settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": server.url}
        assert {answer.error for answer in ask_all()} == {None}


@contextlib.contextmanager
def resolver(monkeypatch: pytest.MonkeyPatch, answer: Callable[[str], Any]) -> Iterator[None]:
    """Answer look-ups of ``*.invalid`` with ``answer``; all others go on as before."""
    genuine = socket.getaddrinfo

    def look_up(host: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(host, str | bytes) and str(host).endswith(".invalid"):
            return answer(str(host))
        return genuine(host, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", look_up)
        yield


def test_an_unknown_host(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Must hold: the name does not exist."""

    def unknown(host: str) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    point_to(settings, "redis.invalid:6379/0")
    with resolver(monkeypatch, unknown):
        check(ask_all(), "unknown host 'redis.invalid'")


def test_an_unknown_host_that_takes_its_time(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Must hold: the resolver says no, but slowly; trying again must not add up."""

    def unknown(host: str) -> Any:
        threading.Event().wait(0.9)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    point_to(settings, "redis.invalid:6379/0")
    with resolver(monkeypatch, unknown):
        check(ask_all(), "unknown host 'redis.invalid'|looking up|does not answer in time")


def test_a_resolver_that_hangs(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Must hold: no name server answers. Also the event loop ends without waiting for it, and
    however many dispatches are made meanwhile, one look-up is under way."""
    release = threading.Event()
    looking_up: list[str] = []

    def hang(host: str) -> Any:
        looking_up.append(host)
        release.wait(30)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    point_to(settings, "redis.invalid:6379/0")
    try:
        with resolver(monkeypatch, hang):
            check(ask_all(), "looking up the host 'redis.invalid' took too long")
            check(ask_all(), "looking up the host 'redis.invalid' took too long")
            assert len(looking_up) == 1
    finally:
        release.set()


def test_a_host_with_a_dead_and_a_living_address(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """user-needs 5: an address that swallows everything does not hide the next one."""
    with valkey(PASSWORD) as server, servers.full_backlog() as dead:
        living = server.port

        def two(host: str) -> Any:
            stream = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
            return [(*stream, ("127.0.0.1", dead)), (*stream, ("127.0.0.1", living))]

        point_to(settings, f"redis.invalid:{living}/0")
        with resolver(monkeypatch, two):
            answers = ask_all()
    assert {answer.error for answer in answers} == {None}, answers
    assert all(answer.seconds < LIMIT_SECONDS for answer in answers), answers


def test_a_unix_socket_that_nobody_accepts_from(settings: Settings, tmp_path: Any) -> None:
    """P87: there, frozen, or not there at all."""
    path = tmp_path / "redis.sock"
    url = f"unix://{path}"
    settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": url}
    check(ask_all(), "cannot be reached")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(50)
        check(ask_all(), "does not answer in time")


SERVER_OPTIONS: dict[str, tuple[dict[str, str], str]] = {
    "a replica": ({"replicaof": "127.0.0.1 1"}, "refuses the command: .*read only replica"),
    "full": (
        {"maxmemory": "1", "maxmemory-policy": "noeviction"},
        "refuses the command: .*maxmemory",
    ),
    "all places taken": ({"maxclients": "1"}, "max number of clients reached|cannot be reached"),
}


@pytest.mark.parametrize("kind", list(SERVER_OPTIONS))
def test_a_server_that_takes_nothing(kind: str, settings: Settings) -> None:
    """Must hold: what Redis refuses is the same typed error, with what Redis says."""
    options, wanted = SERVER_OPTIONS[kind]
    with valkey(options=options) as server, server.client() as other:
        other.ping()
        settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": server.url}
        check(ask_all(), wanted)


def test_a_command_too_large_to_be_sent_in_time(settings: Settings) -> None:
    """bullmq-python 1.21, user-needs 6: sending is bounded too, not only waiting."""
    with servers.server(servers.reads_slowly) as port:
        settings.KUMIKO = {
            **settings.KUMIKO,
            "REDIS_URL": f"redis://127.0.0.1:{port}/0",
            "MAX_PAYLOAD_BYTES": 64 * 2**20,
        }
        payload = {"text": "x" * 16_000_000}
        senders: list[Entry] = [
            lambda: dispatch(record, payload, tenant_id="acme"),
            lambda: asyncio.run(adispatch(record, payload, tenant_id="acme")),
        ]
        for send in senders:
            began = time.monotonic()
            with pytest.raises(BrokerUnavailable, match="does not answer in time"):
                send()
            # Encoding 16 MB takes its time as well.
            assert time.monotonic() - began < LIMIT_SECONDS + 1
