"""The two clients: many threads, forks, loops and addresses, and a Redis that comes back."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from pytest_django import Settings

from kumiko_django import BrokerUnavailable, adispatch, adispatch_many, dispatch, dispatch_many
from kumiko_django.broker.connection import (
    LOOP_CONNECTIONS,
    TOTAL_SECONDS,
    current_address,
    new_async_client,
)
from kumiko_django.broker.keys import queue_name
from tests.app.jobs import record
from tests.helpers.processes import run_python
from tests.helpers.queues import QueueState
from tests.helpers.valkey import Valkey, valkey
from tests.helpers.waiting import wait_until
from tests.integration.broker import servers

pytestmark = pytest.mark.once


def send(number: int = 0) -> str:
    return dispatch(record, {"n": number}, tenant_id="acme").job_id


async def asend(number: int = 0) -> str:
    return (await adispatch(record, {"n": number}, tenant_id="acme")).job_id


def connections(client: Any) -> int:
    """Count the connections to a server, without the one that asks."""
    return len(client.client_list()) - 1


def wait_for_connections(client: Any, at_most: int) -> None:
    wait_until(lambda: connections(client) <= at_most, description="the others are closed")


# ----------------------------------------------------------------------------- a Redis comes back


def restart(server: Valkey) -> None:
    server.stop()
    server.start()


def restart_empty(server: Valkey) -> None:
    server.stop(keep_data=False)
    server.start(empty=True)


def kill_connections(server: Valkey) -> None:
    with server.client() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def forget_scripts(server: Valkey) -> None:
    with server.client() as client:
        client.script_flush()


INTERRUPTIONS = [restart, restart_empty, kill_connections, forget_scripts]


@pytest.mark.parametrize("interrupt", INTERRUPTIONS)
def test_the_next_dispatch_works_at_once(
    interrupt: Callable[[Valkey], None], own_valkey: Valkey
) -> None:
    """Must hold, P64: a connection that the server has closed meanwhile costs nobody his job."""
    with ThreadPoolExecutor(5) as threads:
        barrier = threading.Barrier(5)

        def together(number: int) -> str:
            barrier.wait(10)
            return send(number)

        # Five connections lie in the pool.
        assert len(set(threads.map(together, range(5)))) == 5
        interrupt(own_valkey)
        assert len(set(threads.map(together, range(5)))) == 5
    assert len(dispatch_many(record, [{}] * 3, tenant_id="acme")) == 3


@pytest.mark.parametrize("interrupt", INTERRUPTIONS)
def test_the_next_dispatch_works_at_once_on_a_loop(
    interrupt: Callable[[Valkey], None], own_valkey: Valkey
) -> None:
    """Must hold: the same for the loop of a server that lives for weeks."""

    async def main() -> None:
        assert len(set(await asyncio.gather(*map(asend, range(5))))) == 5
        interrupt(own_valkey)
        assert len(set(await asyncio.gather(*map(asend, range(5))))) == 5
        assert len(await adispatch_many(record, [{}] * 3, tenant_id="acme")) == 3

    asyncio.run(main())


def test_after_an_outage_no_answer_is_taken_for_another_job(own_valkey: Valkey) -> None:
    """Must hold: what a frozen server answers late is not read as the answer to the next."""

    async def main() -> None:
        first = await asend()
        own_valkey.freeze()
        with pytest.raises(BrokerUnavailable):
            await asend()
        own_valkey.thaw()
        second = await asend()
        with own_valkey.client() as client:
            state = QueueState(client, client_queue())
            assert state.job(first).data["n"] == state.job(second).data["n"] == 0

    asyncio.run(main())
    own_valkey.freeze()
    with pytest.raises(BrokerUnavailable):
        send(1)
    own_valkey.thaw()
    with own_valkey.client() as client:
        assert QueueState(client, client_queue()).job(send(2)).data["n"] == 2


def client_queue() -> str:
    return queue_name("worker")


# ------------------------------------------------------------------------------- threads and forks


def test_many_threads(own_valkey: Valkey, queue_prefix: str) -> None:
    """bullmq-python 1.6: the package's queue fails 18 of 20 adds from four threads."""
    with ThreadPoolExecutor(20) as threads:
        ids = list(threads.map(send, range(1000)))
    with own_valkey.client() as client:
        stored = QueueState(client, f"{queue_prefix}-worker").wait
        assert sorted(stored) == sorted(ids)
        assert len(set(ids)) == 1000
        assert connections(client) <= 20


FORKS = """
import os, sys, threading
import django
django.setup()
from kumiko_django import dispatch
from tests.app.jobs import record

def send(who):
    dispatch(record, {"who": who}, tenant_id="acme")

# A busy parent: whatever is locked in it may be locked at the moment of a fork.
over = threading.Event()
sent = [0, 0, 0]
def keep_sending(index):
    while not over.is_set():
        send("parent")
        sent[index] += 1
threads = [threading.Thread(target=keep_sending, args=(index,)) for index in range(3)]
for thread in threads:
    thread.start()
send("parent")
children = []
for number in range(15):
    child = os.fork()
    if child == 0:
        send("child")
        send("child")
        os._exit(0)
    send("parent")
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
over.set()
for thread in threads:
    thread.join()
print(codes.count(0), sum(sent) + 16)
"""


def test_after_a_fork_both_dispatch(own_valkey: Valkey, queue_prefix: str) -> None:
    """bullmq-python 1.6: connections and locks of the parent are not used in the child."""
    finished = run_python(FORKS, timeout=60)
    assert finished.returncode == 0, finished.stderr
    good_children, by_parent = map(int, finished.stdout.split())
    with own_valkey.client() as client:
        stored = QueueState(client, f"{queue_prefix}-worker").jobs("wait")
    who = [job.data["who"] for job in stored]
    assert (good_children, who.count("child"), who.count("parent")) == (15, 30, by_parent)


# ---------------------------------------------------------------------------------- event loops


@pytest.mark.parametrize("runs", ["asyncio.run", "async_to_sync"])
def test_many_loops_one_after_another(
    runs: str, own_valkey: Valkey, queue_prefix: str, recwarn: pytest.WarningsRecorder
) -> None:
    """bullmq-python 1.6: each loop has a client of its own, closed and forgotten with it."""
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def once() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await asend()
        await adispatch_many(record, [{}, {}], tenant_id="acme")

    for _ in range(20):
        if runs == "asyncio.run":
            asyncio.run(once())
        else:
            async_to_sync(once)()
    with own_valkey.client() as client:
        wait_until(lambda: connections(client) == 0, description="all connections are closed")
        assert len(QueueState(client, f"{queue_prefix}-worker").wait) == 60
    gc.collect()
    # asgiref keeps hold of the last one for a while.
    assert len([loop for loop in loops if loop() is not None]) <= 1
    assert [str(warning.message) for warning in recwarn] == []


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_loops_that_are_closed_without_farewell(own_valkey: Valkey) -> None:
    """bullmq-python 1.6: their owner leaks a connection each; we do not keep the loops as well."""
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []
    for _ in range(10):
        loop = asyncio.new_event_loop()
        loops.append(weakref.ref(loop))
        assert loop.run_until_complete(asend())
        loop.close()
        del loop
    assert asyncio.run(asend())
    gc.collect()
    assert len([loop for loop in loops if loop() is not None]) <= 1
    with own_valkey.client() as client:
        wait_until(lambda: connections(client) == 0, description="all connections are closed")


def test_thousands_at_once(own_valkey: Valkey, queue_prefix: str) -> None:
    """bullmq-python 1.5: gathered dispatches take turns on a few connections; none is refused."""

    async def main() -> list[str]:
        return await asyncio.gather(*map(asend, range(2000)))

    ids = asyncio.run(main())
    with own_valkey.client() as client:
        stored = QueueState(client, f"{queue_prefix}-worker").wait
        assert sorted(stored) == sorted(ids)
        # All that there ever were, and the observer's.
        total = client.info("stats")["total_connections_received"]
        assert int(total) <= LOOP_CONNECTIONS + 5


def test_thousands_at_once_and_nobody_answers(settings: Settings) -> None:
    """Must hold: those that wait for their turn share the answer of those before them."""
    seconds: list[float] = []

    async def one() -> None:
        began = time.monotonic()
        with pytest.raises(BrokerUnavailable, match="does not answer in time"):
            await asend()
        seconds.append(time.monotonic() - began)

    async def main() -> None:
        await asyncio.gather(*(one() for _ in range(300)))

    with servers.silent() as port:
        url = f"redis://127.0.0.1:{port}/0"
        settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": url}
        asyncio.run(main())
    assert len(seconds) == 300
    assert max(seconds) < 3


def test_a_blocked_loop_is_not_redis_being_away(own_valkey: Valkey) -> None:
    """bullmq-python 1.10: the answer came while somebody's handler held the loop up."""

    async def main() -> None:
        await asend()
        own_valkey.freeze()
        waiting = asyncio.create_task(asend())
        await asyncio.sleep(0.2)
        threading.Timer(0.3, own_valkey.thaw).start()
        time.sleep(TOTAL_SECONDS + 0.5)  # noqa: ASYNC251 - that is the fault on show
        assert await waiting

    asyncio.run(main())


# -------------------------------------------------------------------------- settings and workers


def test_two_addresses_in_one_process(settings: Settings, queue_prefix: str) -> None:
    """user-needs 44: an override holds at once, and leaves no connection behind."""
    with valkey() as one, valkey() as other:
        ids: dict[Valkey, list[str]] = {one: [], other: []}

        async def alternate() -> None:
            for server in (one, other, one, other):
                settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": server.url}
                ids[server] += await asyncio.gather(asend(), asend())

        for server in (one, other, one, other):
            settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": server.url}
            ids[server] += [send(), send()]
        asyncio.run(alternate())
        for server, sent in ids.items():
            with server.client() as client:
                state = QueueState(client, f"{queue_prefix}-worker")
                assert sorted(state.wait) == sorted(sent)
                # The other one is in use by sync code at the end.
                wait_for_connections(client, at_most=1 if server is other else 0)


def test_a_settings_change_does_not_break_a_dispatch_under_way(settings: Settings) -> None:
    """user-needs 44: another thread is in the middle of a bulk dispatch on the old connection."""
    with valkey() as one, valkey() as other:
        settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": one.url}
        send()
        one.freeze()
        with ThreadPoolExecutor(1) as thread:
            pending = thread.submit(dispatch_many, record, [{}, {}], tenant_id="acme")
            wait_until(lambda: pending.running(), description="the other thread is at it")
            time.sleep(0.2)
            settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": other.url}
            send()
            one.thaw()
            assert len(pending.result(10)) == 2


@pytest.mark.parametrize("form", ["url", "django-redis"])
def test_a_worker_waits_however_short_the_timeouts_of_the_address(
    form: str, settings: Settings, own_valkey: Valkey, queue_prefix: str
) -> None:
    """bullmq-python 1.1, user-needs 42: a blocking command outlives the socket_timeout given."""
    if form == "url":
        url = f"{own_valkey.url}?socket_timeout=0.2&socket_connect_timeout=0.2&timeout=0.2"
        settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": url}
    else:
        settings.CACHES = {
            **settings.CACHES,
            "jobs": {
                "BACKEND": "django_redis.cache.RedisCache",
                "LOCATION": own_valkey.url,
                "OPTIONS": {
                    "SOCKET_TIMEOUT": 0.2,
                    "CONNECTION_POOL_KWARGS": {"socket_timeout": 0.2, "max_connections": 1},
                },
            },
        }
        settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": None, "CACHE_ALIAS": "jobs"}

    async def main() -> None:
        client = new_async_client(current_address(), patient=True)
        began = time.monotonic()
        # As many as run at a time with --concurrency 150: redis-py's own pool ends at 100.
        answers = await asyncio.gather(
            *(client.bzpopmin(f"{queue_prefix}-nothing", 1) for _ in range(150))
        )
        await client.aclose()
        assert answers == [None] * 150
        assert time.monotonic() - began >= 1

    asyncio.run(main())
    assert send()


def test_what_a_dispatch_costs_in_round_trips(own_valkey: Valkey) -> None:
    """design 2, 9: one command a dispatch, and as good as one a portion of a bulk dispatch."""
    send()
    with own_valkey.client() as client:

        def scripts_run() -> dict[str, int]:
            stats = client.info("commandstats")
            return {
                name: stats.get(f"cmdstat_{name}", {}).get("calls", 0)
                for name in ("evalsha", "script|load", "script|exists")
            }

        before = scripts_run()
        for _ in range(10):
            send()
        after = scripts_run()
        assert (after["evalsha"] - before["evalsha"], after["script|load"]) == (10, 1)
        dispatch_many(record, [{}] * 1000, tenant_id="acme")
        bulk = scripts_run()
        assert bulk["evalsha"] - after["evalsha"] == 1000
        assert bulk["script|load"] == 1
        assert bulk["script|exists"] - after["script|exists"] <= 5
