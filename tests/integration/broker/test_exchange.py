"""One exchange with Redis: who gets which answers, whatever happens (design 9, P64)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from redis._parsers import Encoder
from redis.connection import PythonRespSerializer
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from kumiko_django.broker import exchange as exchange_module
from kumiko_django.broker.exchange import Pool, aexchange, exchange
from tests.helpers.valkey import Valkey
from tests.integration.broker import servers

pytestmark = pytest.mark.once


@pytest.fixture(params=["hiredis", "redis-py"], autouse=True)
def packer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With hiredis' packer, and as without the extra."""
    if request.param == "redis-py":
        monkeypatch.setattr(exchange_module, "_pack_fast", None)
    else:
        assert exchange_module._pack_fast is not None


@contextlib.contextmanager
def sync_client(url: str, **options: Any) -> Iterator[redis.Redis]:
    port = int(url.rsplit(":", 1)[1].split("/")[0])
    options = {
        "port": port,
        "decode_responses": True,
        "protocol": 2,
        "socket_timeout": 5,
        **options,
    }
    if exchange_module._pack_fast is None:  # then redis-py has not got hiredis' either
        encoder = Encoder("utf-8", options.get("encoding_errors", "strict"), True)
        options["command_packer"] = PythonRespSerializer(6000, encoder.encode)
    with redis.Redis.from_pool(Pool(**options)) as client:
        yield client


@contextlib.asynccontextmanager
async def async_client(url: str, **options: Any) -> AsyncIterator[redis.asyncio.Redis]:
    options = {"decode_responses": True, "protocol": 2, "socket_timeout": 5, **options}
    async with redis.asyncio.Redis.from_url(url, **options) as client:
        yield client


def kill_connections(server: Valkey) -> None:
    with server.client() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


COMMANDS: list[tuple[Any, ...]] = [
    ("SET", "key", "Grüße, 日本"),
    ("GET", "key"),
    ("INCRBY", "number", 41),
    ("INCRBYFLOAT", "number", 1.5),
    ("SET", b"bytes", b"\r\n\x00\r\n"),
    ("STRLEN", "bytes"),
    ("LPOP", "key"),
    ("GET", "nothing"),
    ("ECHO", ""),
]
ANSWERS = ["OK", "Grüße, 日本", 41, "42.5", "OK", 5, "WRONGTYPE", None, ""]


def known(answers: list[Any]) -> list[Any]:
    return [str(a).split()[0] if isinstance(a, ResponseError) else a for a in answers]


def test_each_command_has_its_answer(own_valkey: Valkey) -> None:
    """An error stands in the place of the answer that it is."""
    with sync_client(own_valkey.url) as client:
        answers = known(exchange(client, COMMANDS))
    assert [a.decode() if isinstance(a, bytes) else a for a in answers] == ANSWERS


async def test_each_command_has_its_answer_on_a_loop(own_valkey: Valkey) -> None:
    async with async_client(own_valkey.url) as client:
        answers = known(await aexchange(client, COMMANDS))
    assert [a.decode() if isinstance(a, bytes) else a for a in answers] == ANSWERS


def test_a_closed_connection_is_tried_again_once(own_valkey: Valkey) -> None:
    """P64: the server has closed it meanwhile."""
    with sync_client(own_valkey.url, retry=None) as client:
        exchange(client, [("PING",)])
        kill_connections(own_valkey)
        assert exchange(client, [("INCR", "n"), ("INCR", "n")]) == [1, 2]


async def test_a_closed_connection_is_tried_again_once_on_a_loop(own_valkey: Valkey) -> None:
    async with async_client(own_valkey.url, retry=None) as client:
        await aexchange(client, [("PING",)])
        kill_connections(own_valkey)
        assert await aexchange(client, [("INCR", "n"), ("INCR", "n")]) == [1, 2]


def count_commands(seen: list[bytes], after: Callable[[Any, Any], None]) -> servers.Talk:
    """Answer all but ECHO; for that do ``after``."""

    def talk(connection: Any, over: threading.Event) -> None:
        while received := connection.recv(65536):
            if b"ECHO" in received:
                seen.append(received)
                return after(connection, over)
            connection.sendall(b"+OK\r\n" * received.count(b"*"))
        return None

    return talk


def closes(connection: Any, over: threading.Event) -> None:
    """Close instead of answering."""


def keeps_silent(connection: Any, over: threading.Event) -> None:
    over.wait()


TRIES = [(closes, RedisConnectionError, 2), (keeps_silent, RedisTimeoutError, 1)]
"""What the server does, what is raised, and how often the command was sent."""


@pytest.mark.parametrize(("after", "error", "count"), TRIES, ids=["closed", "silent"])
def test_tried_again_after_a_cut_and_not_after_a_time_out(
    after: Any, error: type[Exception], count: int
) -> None:
    """A second try after a time-out would double the wait."""
    seen: list[bytes] = []
    with (
        servers.server(count_commands(seen, after)) as port,
        sync_client(f"redis://127.0.0.1:{port}", socket_timeout=0.3, retry=None) as client,
        pytest.raises(error),
    ):
        exchange(client, [("ECHO", "a")])
    assert len(seen) == count


@pytest.mark.parametrize(("after", "error", "count"), TRIES, ids=["closed", "silent"])
async def test_tried_again_after_a_cut_and_not_after_a_time_out_on_a_loop(
    after: Any, error: type[Exception], count: int
) -> None:
    seen: list[bytes] = []
    with servers.server(count_commands(seen, after)) as port:
        url = f"redis://127.0.0.1:{port}"
        async with async_client(url, socket_timeout=0.3, retry=None) as client:
            with pytest.raises(error):
                await aexchange(client, [("ECHO", "a")])
    assert len(seen) == count


async def test_answers_of_a_cancelled_exchange_reach_nobody(own_valkey: Valkey) -> None:
    """Must hold: a dispatch that was given up must not give its job's id to the next one."""
    async with async_client(own_valkey.url, max_connections=1) as client:
        await aexchange(client, [("PING",)])
        own_valkey.freeze()
        given_up = asyncio.create_task(aexchange(client, [("ECHO", "old"), ("ECHO", "older")]))
        await asyncio.sleep(0.05)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        own_valkey.thaw()
        for number in range(3):
            assert await aexchange(client, [("ECHO", f"new {number}")]) == [f"new {number}"]


def test_answers_of_an_interrupted_exchange_reach_nobody(own_valkey: Valkey) -> None:
    """The same in sync code, where a web server ends a request by raising into its thread."""

    class Interrupted(redis.Connection):
        answers = 0

        def read_response(self, *args: Any, **options: Any) -> Any:
            answer: Any = super().read_response(*args, **options)
            if answer == "first":
                raise SystemExit(1)  # between two answers
            return answer

    with sync_client(own_valkey.url, connection_class=Interrupted, max_connections=1) as client:
        with pytest.raises(SystemExit):
            exchange(client, [("ECHO", "first"), ("BLPOP", "nothing", "0.1"), ("ECHO", "third")])
        assert exchange(client, [("ECHO", "next")]) == ["next"]


def test_lone_surrogates_are_replaced_where_the_client_says_so(own_valkey: Valkey) -> None:
    """P32: an error's text may hold what has no bytes; the job must be settled all the same."""
    with sync_client(own_valkey.url, encoding_errors="replace") as client:
        answers = exchange(client, [("SET", "key", "a\ud800b"), ("GET", "key")])
    assert answers == ["OK", "a?b"]
    with sync_client(own_valkey.url) as client, pytest.raises(UnicodeEncodeError):
        exchange(client, [("SET", "key", "a\ud800b")])


async def test_lone_surrogates_are_replaced_on_a_loop(own_valkey: Valkey) -> None:
    async with async_client(own_valkey.url, encoding_errors="replace") as client:
        assert await aexchange(client, [("SET", "k", "\udfff"), ("GET", "k")]) == ["OK", "?"]
    async with async_client(own_valkey.url) as client:
        with pytest.raises(UnicodeEncodeError):
            await aexchange(client, [("SET", "k", "\udfff")])
        assert await aexchange(client, [("ECHO", "next")]) == ["next"]
