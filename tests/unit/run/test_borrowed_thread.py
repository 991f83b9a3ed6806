"""One thread for all sync work of an async run, borrowed and given back (P34, user-needs 20)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections, transaction

from kumiko_django.run.execution import _RunThread
from kumiko_django.run.threads import HandlerThreads
from tests.app.models import Order
from tests.helpers.fixtures import ConnectionCount
from tests.helpers.waiting import await_until, wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def alive() -> set[str]:
    return {t.name for t in threading.enumerate() if t.name.startswith("kumiko-handler-")}


def here() -> str:
    return threading.current_thread().name


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[HandlerThreads]:
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", None)
    connections.close_all()
    wait_until(lambda: not alive(), description="the threads of others have ended")
    made = HandlerThreads()
    yield made
    made.close()
    wait_until(lambda: not alive(), description="all threads have ended")


def in_run(threads: HandlerThreads, work: Callable[[], Any]) -> Any:
    """Await ``work`` as the async handler of a run; in a task of its own, as handlers are."""

    async def main() -> Any:
        async with _RunThread(threads):
            return await work()

    return asyncio.create_task(main())


def test_threads_and_connections_are_used_again(
    threads: HandlerThreads, connection_count: ConnectionCount
) -> None:
    """user-needs 20: as many as run at a time, however many runs there are."""
    before = connection_count()

    async def work() -> None:
        await Order.objects.acreate(tenant_id="acme", number="1")
        await Order.objects.acount()

    async def main() -> tuple[int, int | None]:
        for _ in range(30):
            await asyncio.gather(*(in_run(threads, work) for _ in range(4)))
        return len(alive()), connection_count()

    made, connected = asyncio.run(main())
    assert made <= 4
    if before is not None and connected is not None:
        assert connected - before <= 4
    assert Order.objects.count() == 120


def test_a_stop_iteration_arrives(threads: HandlerThreads) -> None:
    """P24: asked for on the loop it would be a RuntimeError, too; a future refuses it, and the
    handler would have waited for ever."""

    async def work() -> None:
        await asyncio.wait_for(sync_to_async(lambda: next(iter(())))(), 10)

    async def main() -> None:
        await in_run(threads, work)

    with pytest.raises(RuntimeError, match="StopIteration"):
        asyncio.run(main())


def test_a_run_that_asks_nothing_of_it_takes_no_thread(threads: HandlerThreads) -> None:
    """Most async runs have no sync work at all."""

    async def work() -> None:
        await asyncio.sleep(0)

    async def main() -> set[str]:
        await asyncio.gather(*(in_run(threads, work) for _ in range(10)))
        return alive()

    assert asyncio.run(main()) == set()


def test_all_of_a_run_is_in_one_thread_one_thing_after_the_other(threads: HandlerThreads) -> None:
    """Django's connections belong to a thread; a transaction holds for the whole run."""

    async def work() -> list[Any]:
        atomic = transaction.atomic()
        await sync_to_async(atomic.__enter__)()
        await Order.objects.acreate(tenant_id="acme", number="1")
        names = await asyncio.gather(*(sync_to_async(here)() for _ in range(5)))
        is_open = await sync_to_async(lambda: connection.in_atomic_block)()
        await sync_to_async(atomic.__exit__)(None, None, None)
        return [set(names), is_open]

    async def main() -> list[Any]:
        return list(await asyncio.gather(*(in_run(threads, work) for _ in range(3))))

    results = asyncio.run(main())
    assert [(len(names), is_open) for names, is_open in results] == [(1, True)] * 3
    assert len(set.union(*(names for names, _ in results))) == 3
    assert Order.objects.count() == 3


def test_a_transaction_left_open_is_undone_before_the_thread_is_lent_again(
    threads: HandlerThreads,
) -> None:
    """P106: a run that was broken off leaves nothing to the next."""

    async def leave() -> str:
        await sync_to_async(transaction.atomic().__enter__)()
        await Order.objects.acreate(tenant_id="acme", number="never")
        return await sync_to_async(here)()

    async def look() -> tuple[str, bool]:
        return await sync_to_async(here)(), await sync_to_async(
            lambda: connection.in_atomic_block
        )()

    async def main() -> list[Any]:
        left = await in_run(threads, leave)
        await await_until(lambda: threads._idle, description="the thread is free")
        return [left, *await in_run(threads, look)]

    left, thread, in_atomic = asyncio.run(main())
    assert (thread, in_atomic) == (left, False)
    assert not Order.objects.exists()


def test_a_call_that_was_given_up_holds_its_own_thread_and_no_other(
    threads: HandlerThreads,
) -> None:
    """A handler's ``wait_for`` cannot stop a thread. The next run gets another one, and the first
    is free again when its call ends."""
    go = threading.Event()

    async def give_up() -> str:
        name = await sync_to_async(here)()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(sync_to_async(go.wait)(10), 0.05)
        return name

    async def main() -> tuple[str, str, str]:
        first = await in_run(threads, give_up)
        second = await in_run(threads, sync_to_async(here))
        go.set()
        await await_until(lambda: len(threads._idle) == 2, description="both are free")
        names = await asyncio.gather(*(in_run(threads, sync_to_async(here)) for _ in range(2)))
        return first, second, str(len(set(names) | {first, second}))

    first, second, count = asyncio.run(main())
    assert first != second
    assert count == "2"


def test_a_call_that_was_given_up_before_it_began_is_not_made(threads: HandlerThreads) -> None:
    made: list[str] = []

    async def work() -> None:
        go = threading.Event()
        holds = asyncio.create_task(sync_to_async(go.wait)(10))
        await asyncio.sleep(0)
        waits = asyncio.create_task(sync_to_async(made.append)("never"))
        await asyncio.sleep(0)
        waits.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waits
        go.set()
        await holds
        await sync_to_async(made.append)("after")

    async def main() -> None:
        await in_run(threads, work)

    asyncio.run(main())
    assert made == ["after"]


def test_an_error_arrives_and_the_thread_goes_on(threads: HandlerThreads) -> None:
    def fail() -> None:
        raise SystemExit(3)

    async def work() -> str:
        with pytest.raises(SystemExit):
            await sync_to_async(fail)()
        return await sync_to_async(here)()

    async def main() -> str:
        return str(await in_run(threads, work))

    assert asyncio.run(main()).startswith("kumiko-handler-")


def test_a_task_that_outlives_its_run_can_work_and_keeps_no_thread(
    threads: HandlerThreads, connection_count: ConnectionCount
) -> None:
    """A handler may leave a task behind. Its sync work then takes threads like that of any other,
    each call for itself, and their connections stay counted."""
    before = connection_count()
    left: list[asyncio.Task[str]] = []

    async def main() -> tuple[str, str, set[str]]:
        over = asyncio.Event()

        async def later() -> str:
            await over.wait()
            await Order.objects.acreate(tenant_id="acme", number="late")
            return await sync_to_async(here)()

        async def work() -> str:
            left.append(asyncio.create_task(later()))
            return await sync_to_async(here)()

        ran = await in_run(threads, work)
        over.set()
        name = await left[0]
        await await_until(lambda: threads._idle, description="the thread is free")
        return ran, name, alive()

    ran, name, there = asyncio.run(main())
    assert Order.objects.get().number == "late"
    assert name == ran, "lent again"
    assert there == {ran}
    connection.close()
    if before is not None:
        assert connection_count() == before + 1
