"""Script calls of one loop go to Redis together (bullmq-python 5, design 9).

How many exchanges there were, the server says itself: it counts what it reads from its clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from kumiko_django.broker import channel as channel_module
from kumiko_django.broker.bullmq import Script
from kumiko_django.broker.channel import Channel
from kumiko_django.broker.connection import current_address, new_async_client
from tests.helpers.valkey import Valkey

pytestmark = pytest.mark.once

PUSH = Script.of("redis.call('RPUSH', KEYS[1], ARGV[1]) return redis.call('LLEN', KEYS[1])")
FAILS = Script.of("return redis.error_reply('REFUSED for ' .. ARGV[1])")
KEY = "pushed"


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[Channel]:
    client = new_async_client(current_address(), patient=True)
    channel = Channel(client)
    try:
        yield channel
    finally:
        await channel.close()
        await client.aclose()


def push(channel: Channel, text: str) -> asyncio.Future[Any]:
    return channel.run(PUSH, [KEY], [text])


def pushed(server: Valkey) -> list[str]:
    with server.client() as client:
        found: Any = client.lrange(KEY, 0, -1)
    return list(found)


def reads(server: Valkey) -> int:
    """How often the server has read something, without the reading of this question."""
    with server.client() as client:
        client.ping()  # the connection is set up
        return int(client.info("stats")["total_reads_processed"])


def asking_costs(server: Valkey) -> int:
    first = reads(server)
    return reads(server) - first


async def test_the_calls_of_one_turn_are_one_exchange_in_their_order(own_valkey: Valkey) -> None:
    """bullmq-python 5: many that settle at the same time pay for one round trip."""
    async with opened() as channel:
        assert await push(channel, "first") == 1  # connected, and the script is loaded
        before = reads(own_valkey)
        lengths = await asyncio.gather(*(push(channel, str(n)) for n in range(50)))
        together = reads(own_valkey) - before - asking_costs(own_valkey)
    assert lengths == list(range(2, 52))
    assert pushed(own_valkey) == ["first", *map(str, range(50))]
    assert together == 1


async def test_what_comes_during_an_exchange_goes_together_with_the_next(
    own_valkey: Valkey,
) -> None:
    """Tasks that ask one after the other while an answer is on its way share the one after it."""
    async with opened() as channel:
        await push(channel, "first")
        before = reads(own_valkey)
        slow = channel.execute("BLPOP", "nothing", "0.2")
        await asyncio.sleep(0)  # it is sent
        late = []
        for number in range(20):
            late.append(push(channel, str(number)))
            await asyncio.sleep(0)
        assert not any(future.done() for future in late)
        await asyncio.gather(slow, *late)
        together = reads(own_valkey) - before - asking_costs(own_valkey)
    assert pushed(own_valkey)[1:] == [str(n) for n in range(20)]
    assert together == 2


async def test_the_error_of_one_call_is_its_own(own_valkey: Valkey) -> None:
    """A job that the queue's script trips over takes no other job with it."""
    async with opened() as channel:
        assert await push(channel, "first") == 1
        calls = [
            push(channel, "a"),
            channel.run(FAILS, [], ["b"]),
            channel.execute("HGET", KEY, "of a list"),
            push(channel, "d"),
        ]
        first, second, third, fourth = await asyncio.gather(*calls, return_exceptions=True)
    assert (first, fourth) == (2, 3)
    assert isinstance(second, ResponseError)
    assert "REFUSED for b" in str(second)
    assert isinstance(third, ResponseError)
    assert "WRONGTYPE" in str(third)


async def test_scripts_that_the_server_has_forgotten_are_loaded_and_run_once(
    own_valkey: Valkey,
) -> None:
    """A server that was restarted, or flushed by somebody, knows none of our scripts."""
    async with opened() as channel:
        await push(channel, "before")
        with own_valkey.client() as client:
            client.script_flush()
        answers = await asyncio.gather(
            *(push(channel, str(n)) for n in range(3)), channel.execute("LLEN", KEY)
        )
    # Nothing is done twice; the plain command did not wait for the loading.
    assert answers == [2, 3, 4, 1]
    assert pushed(own_valkey) == ["before", "0", "1", "2"]


async def test_a_cut_connection_fails_all_calls_of_the_exchange_and_the_next_goes_on(
    own_valkey: Valkey,
) -> None:
    """bullmq-python 1.11: who asked may ask again; nothing hangs, and nothing stays broken."""
    async with opened() as channel:
        await push(channel, "before")
        own_valkey.freeze()
        calls = [push(channel, str(n)) for n in range(5)]
        await asyncio.sleep(0.05)  # on their way
        own_valkey.stop(keep_data=False)
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(answer, RedisError | OSError) for answer in answers), answers
        with pytest.raises((RedisError, OSError)):
            await push(channel, "away")
        own_valkey.start()
        assert await push(channel, "after") == 1


async def test_a_connection_that_the_server_closed_meanwhile_costs_no_call(
    own_valkey: Valkey,
) -> None:
    """P64: an idle connection that is gone is noticed when it is used, and replaced."""
    async with opened() as channel:
        await push(channel, "before")
        with own_valkey.client() as client:
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert await asyncio.gather(*(push(channel, str(n)) for n in range(3))) == [2, 3, 4]


async def test_who_no_longer_waits_disturbs_nobody(own_valkey: Valkey) -> None:
    """A cancelled caller's call is carried out all the same; the others get their own answers."""
    async with opened() as channel:
        await push(channel, "first")

        async def ask(text: str) -> Any:
            return await push(channel, text)

        tasks = [asyncio.create_task(ask(str(n))) for n in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert (answers[0], answers[2]) == (2, 4)
        assert isinstance(answers[1], asyncio.CancelledError)
        assert await push(channel, "last") == 5


async def test_closing_waits_for_what_is_on_its_way(own_valkey: Valkey) -> None:
    """Records are dropped without being waited for; those of the last moment are dropped too."""
    client = new_async_client(current_address(), patient=True)
    channel = Channel(client)
    calls = [push(channel, str(n)) for n in range(3)]
    await channel.close()
    assert [call.result() for call in calls] == [1, 2, 3]
    await client.aclose()


async def test_closing_is_bounded_while_the_server_does_not_answer(own_valkey: Valkey) -> None:
    """P93: a worker that leaves is not held up by Redis, and nobody waits for ever afterwards."""
    client = new_async_client(current_address(), patient=True)
    channel = Channel(client)
    await push(channel, "before")
    own_valkey.freeze()
    try:
        sent = push(channel, "sent")
        await asyncio.sleep(0.05)
        waits = push(channel, "waits")
        began = time.monotonic()
        await channel.close()
        await client.aclose()
        assert time.monotonic() - began < channel_module.CLOSE_SECONDS + 1
        answers = await asyncio.wait_for(
            asyncio.gather(sent, waits, return_exceptions=True), timeout=1
        )
        assert all(isinstance(answer, BaseException) for answer in answers), answers
        with pytest.raises(RedisConnectionError, match="closed"):
            await asyncio.wait_for(push(channel, "late"), timeout=1)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not [task for task in others if task.get_name() == "kumiko-exchange"]
    finally:
        own_valkey.thaw()
