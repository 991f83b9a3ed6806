"""Connections of threads that run one job after the other: asked when it pays (user-needs 19)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, connections

from kumiko_django.run import connections as connections_module
from kumiko_django.run.threads import HandlerThreads
from tests.app.models import Order
from tests.helpers import database

pytestmark = pytest.mark.django_db(transaction=True)

is_postgresql = connection.vendor == "postgresql"
ASKED = 1
"""SQLite, which is a file, answers without being asked anything."""


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[HandlerThreads]:
    """Threads whose connections stay open."""
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", None)
    made = HandlerThreads()
    yield made
    made.close()


@pytest.fixture
def a_pause(monkeypatch: pytest.MonkeyPatch) -> Here:
    """From there on every pause is a long one."""
    return Here(lambda: monkeypatch.setattr(connections_module, "FRESH_SECONDS", 0.0))


def health_checks() -> int:
    """How often the connection of this thread is asked whether it works, in two queries."""
    wrapper: Any = connections["default"]
    asked = 0
    is_usable = wrapper.is_usable

    def counted() -> bool:
        nonlocal asked
        asked += 1
        return bool(is_usable())

    wrapper.is_usable = counted
    try:
        Order.objects.count()
        Order.objects.count()
    finally:
        del wrapper.is_usable
    return asked


def session() -> Any:
    """What tells one connection of this thread from another."""
    connection.ensure_connection()
    raw: Any = connection.connection
    return raw.info.backend_pid if is_postgresql else id(raw)


class Here:
    """Something that is done in the test's own thread, between two runs."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function


def run(threads: HandlerThreads, *steps: Callable[[], Any] | Here) -> list[Any]:
    """Run one after the other in a thread, on one loop; what is done here gives nothing."""
    connections.close_all()  # so that what is open is the thread's

    async def main() -> list[Any]:
        results = []
        for step in steps:
            if isinstance(step, Here):
                step.function()
            else:
                results.append(await threads.run(step))
        return results

    return asyncio.run(main())


def test_runs_that_follow_at_once_ask_nothing(threads: HandlerThreads) -> None:
    """Design 9: a question to the server for every job would cost more than the rest of it."""
    first, *asked, last = run(
        threads, session, health_checks, health_checks, health_checks, session
    )
    assert asked == [0, 0, 0]
    assert last == first, "the same connection"


def test_after_a_pause_it_is_asked_once(threads: HandlerThreads, a_pause: Here) -> None:
    """user-needs 19: the server, or a firewall, may have cut it meanwhile."""
    first, *asked, last = run(threads, session, a_pause, health_checks, health_checks, session)
    assert asked == [ASKED, ASKED], "once for each pause, not for each query"
    assert last == first


def end_sessions() -> None:
    if is_postgresql:
        assert database.terminate_connections() >= 1


@pytest.mark.parametrize("paused", [False, True], ids=["at once", "after a pause"])
def test_a_session_that_was_ended_while_its_thread_was_idle_fails_no_run(
    paused: bool, threads: HandlerThreads, a_pause: Here
) -> None:
    """user-needs 19: no job fails because it was the first one after a failover, say."""
    between = [Here(end_sessions), *([a_pause] if paused else [])]
    first, count, last = run(threads, session, *between, Order.objects.count, session)
    assert count == 0
    assert (last == first) is not is_postgresql


def test_sqlite_is_left_as_it_is(threads: HandlerThreads, a_pause: Here) -> None:
    """Its connection has no socket; opening the file anew for each run would cost much."""

    def has_word() -> bool:
        return connections_module._has_word(connection)

    unconnected, first, idle, asked, last = run(
        threads, has_word, session, has_word, a_pause, health_checks, session
    )
    assert unconnected is True, "what cannot be known means yes"
    assert (idle, asked, last) == (False, ASKED, first)


def test_a_thread_without_a_connection_opens_none(threads: HandlerThreads) -> None:
    """Handlers that need no database have none."""

    def opened() -> int:
        return len(connections.all(initialized_only=True))

    assert run(threads, opened, opened) == [0, 0]
