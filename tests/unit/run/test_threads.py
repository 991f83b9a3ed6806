"""Threads for sync handlers leave nothing of one run to the next (P34, P106)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from pytest_django import Settings

from kumiko_django import current_tenant_id
from kumiko_django.run.threads import HandlerThreads
from kumiko_django.tenancy.scope import run_scope
from kumiko_django.types import ambient
from tests.app.models import Order
from tests.helpers.fixtures import ConnectionCount
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

probe: ContextVar[str] = ContextVar("probe", default="clean")


@pytest.fixture
def threads() -> Iterator[HandlerThreads]:
    others = _alive()
    made = HandlerThreads()
    yield made
    made.close()
    wait_until(lambda: not _alive() - others, description="idle threads have ended")


def _alive() -> set[threading.Thread]:
    return {t for t in threading.enumerate() if t.name.startswith("kumiko-handler-")}


def run(threads: HandlerThreads, *functions: Callable[[], Any]) -> list[Any]:
    """Run one after the other, on one loop."""

    async def main() -> list[Any]:
        return [await threads.run(function) for function in functions]

    return asyncio.run(main())


def test_a_function_sees_the_context_and_leaks_nothing_into_it(threads: HandlerThreads) -> None:
    def leak() -> str:
        seen = probe.get()
        probe.set("leaked")
        return seen

    async def main() -> list[str]:
        probe.set("mine")
        first = await threads.run(leak)
        return [first, await threads.run(leak), probe.get()]

    assert asyncio.run(main()) == ["mine", "mine", "mine"]


def test_the_scope_of_a_run_is_gone_when_its_thread_is_used_again(threads: HandlerThreads) -> None:
    """P106: what is set for a run does not reach whoever has its thread next."""

    def look() -> tuple[str, str | None]:
        return threading.current_thread().name, current_tenant_id()

    async def main() -> list[tuple[str, str | None]]:
        run_of_acme = ambient.context_with({ambient.scope: run_scope("acme")})
        return [await threads.run(look, run_of_acme), await threads.run(look)]

    (first, tenant), (second, following) = asyncio.run(main())
    assert (first, tenant) == (second, "acme")
    assert following is None


def test_threads_are_used_again_and_never_more_than_run_at_a_time(threads: HandlerThreads) -> None:
    async def main() -> list[set[str]]:
        rounds = []
        for _ in range(5):
            meet = threading.Barrier(3, timeout=10)

            def work(barrier: threading.Barrier = meet) -> str:
                barrier.wait()
                return threading.current_thread().name

            rounds.append(set(await asyncio.gather(*(threads.run(work) for _ in range(3)))))
        return rounds

    rounds = asyncio.run(main())
    assert all(names == rounds[0] for names in rounds)
    assert len(rounds[0]) == 3
    assert all(thread.daemon for thread in _alive())


def test_whatever_is_raised_arrives(threads: HandlerThreads) -> None:
    """P24: the bare ``next()`` of a host's ``TENANTS``, say. A future refuses a StopIteration, and
    the run that waited for it would have waited for ever, with its lock renewed."""

    def raises_stop_iteration() -> None:
        next(iter(()))

    async def main() -> None:
        await asyncio.wait_for(threads.run(raises_stop_iteration), 10)

    with pytest.raises(RuntimeError, match="StopIteration") as raised:
        asyncio.run(main())
    assert isinstance(raised.value.__cause__, StopIteration)


def leave_open() -> None:
    transaction.atomic().__enter__()
    Order.objects.create(tenant_id="acme", number="never")


def leave_autocommit_off() -> None:
    transaction.set_autocommit(False)
    Order.objects.create(tenant_id="acme", number="never")


def break_the_transaction() -> None:
    transaction.atomic().__enter__()
    transaction.set_rollback(True)


def die_inside() -> None:
    transaction.atomic().__enter__()
    Order.objects.create(tenant_id="acme", number="never")
    raise SystemExit(1)


@pytest.mark.parametrize(
    "mess", [leave_open, leave_autocommit_off, break_the_transaction, die_inside]
)
def test_a_transaction_left_open_is_rolled_back(
    mess: Callable[[], None], threads: HandlerThreads
) -> None:
    """P106: nothing of it is committed, and the next run in the thread has a clean connection."""

    async def main() -> tuple[str, bool, bool]:
        names = []

        def leave() -> None:
            names.append(threading.current_thread().name)
            mess()

        with contextlib.suppress(SystemExit):
            await threads.run(leave)

        def look() -> tuple[str, bool, bool]:
            Order.objects.create(tenant_id="acme", number="kept")
            here = threading.current_thread().name
            return here, connection.in_atomic_block, connection.get_autocommit()

        seen: tuple[str, bool, bool] = await threads.run(look)
        assert names == [seen[0]], "it must have been the same thread"
        return seen

    _, in_atomic, autocommit = asyncio.run(main())
    assert (in_atomic, autocommit) == (False, True)
    assert [order.number for order in Order.objects.all()] == ["kept"]


def test_a_connection_that_cannot_be_cleaned_is_replaced(
    threads: HandlerThreads, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A driver that raises while it closes must not leave the run waiting for ever."""

    def fails(self: BaseDatabaseWrapper) -> None:
        raise RuntimeError("the driver's fault")

    def first() -> int:
        return Order.objects.count()

    def spoil() -> int:
        connection.ensure_connection()
        monkeypatch.setattr(BaseDatabaseWrapper, "close_if_unusable_or_obsolete", fails)
        return 7

    def mend() -> int:
        monkeypatch.undo()
        return Order.objects.count()

    with caplog.at_level(logging.ERROR, "kumiko_django.run"):
        assert run(threads, first, spoil, mend) == [0, 7, 0]
    assert "could not be cleaned" in caplog.text


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), ValueError()]
)
def test_every_exception_arrives_and_the_thread_lives_on(
    error: BaseException, threads: HandlerThreads
) -> None:
    def fail() -> None:
        raise error

    async def main() -> tuple[BaseException, str]:
        future = threads.run(fail)
        await asyncio.wait([future])
        caught = future.exception()
        assert caught is not None
        return caught, await threads.run(lambda: "alive")

    assert asyncio.run(main()) == (error, "alive")


def test_who_no_longer_waits_disturbs_nothing(threads: HandlerThreads) -> None:
    async def main() -> str:
        go = threading.Event()
        threads.run(lambda: go.wait(10)).cancel()
        go.set()
        return await threads.run(lambda: "next")  # type: ignore[no-any-return]

    assert asyncio.run(main()) == "next"


def test_statements_are_not_remembered_for_ever(
    threads: HandlerThreads, settings: Settings
) -> None:
    """With DEBUG on, Django keeps every statement of a connection until the next request."""
    settings.DEBUG = True

    def query() -> int:
        Order.objects.count()
        return len(connection.queries)

    counts = run(threads, query, query, query)
    assert counts[0] >= 1
    assert len(set(counts[1:])) == 1, counts
    assert counts[-1] <= counts[0]


def test_closing_ends_idle_threads_and_their_connections(
    connection_count: ConnectionCount, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """user-needs 20: under CONN_MAX_AGE None too."""
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", None)
    connection.close()
    others, before = _alive(), connection_count() or 0
    threads = HandlerThreads()
    run(threads, Order.objects.count, Order.objects.count)
    if before is not None and connection.vendor == "postgresql":
        assert connection_count() == before + 1, "one thread, one connection, kept"
    threads.close()
    wait_until(lambda: not _alive() - others, description="the threads have ended")
    wait_until(lambda: (connection_count() or 0) == before, description="connections are closed")


def test_a_thread_that_still_works_is_not_waited_for() -> None:
    """Closing leaves a hanging handler to the end of the process."""
    others = _alive()
    threads = HandlerThreads()
    go = threading.Event()

    async def main() -> float:
        threads.run(lambda: go.wait(10))
        began = time.monotonic()
        threads.close()
        return time.monotonic() - began

    took = asyncio.run(main())
    assert took < 1
    assert _alive() - others
    go.set()
    wait_until(lambda: not _alive() - others, description="it ends with its function")
