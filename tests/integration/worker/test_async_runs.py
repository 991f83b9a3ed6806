"""Async handlers and the ORM: transactions hold, threads and connections are bounded (P64, P34)."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections, transaction

from kumiko_django import JobContext, dispatch, dispatch_many
from kumiko_django.history.models import JobRun
from tests.app.models import Order
from tests.helpers.fixtures import ConnectionCount, QueueStateFactory
from tests.helpers.waiting import wait_until
from tests.integration.worker.host_thread import Define, StartHost, ended_run

CONCURRENCY, JOBS = 4, 60


def test_a_dispatch_in_a_transaction_of_an_async_handler_waits_for_its_commit(
    define: Define, host: StartHost, queue_state: QueueStateFactory
) -> None:
    """P64: and a rollback leaves nothing; the run's thread has the transaction."""
    queue = queue_state("api")

    async def sends(payload: dict[str, Any], ctx: JobContext) -> list[Any]:
        atomic = transaction.atomic()
        before = await ctx.adispatch("testapp:job:api-echo", {"n": 0})
        await sync_to_async(atomic.__enter__)()
        sent = await ctx.adispatch("testapp:job:api-echo", {"n": 1})
        if payload["rollback"]:
            await sync_to_async(transaction.set_rollback)(True)
        pending = await sync_to_async(queue.pending)()
        await sync_to_async(atomic.__exit__)(None, None, None)
        return [before.reason, sent.reason, pending, sent.job_id]

    job = define(sends, name="sends")
    host("worker")
    for rollback, pending in ((False, 1), (True, 3)):
        run = ended_run(dispatch(job, {"rollback": rollback}, tenant_id="acme").job_id)
        result: Any = run.result
        assert result[:3] == [None, "after-commit", pending], run.error
        assert queue.exists(result[3]) is not rollback
    assert queue.pending() == 3


def handler_threads() -> int:
    return sum(1 for each in threading.enumerate() if each.name.startswith("kumiko-handler-"))


def test_threads_and_connections_are_bounded_over_many_async_runs(
    define: Define,
    host: StartHost,
    connection_count: ConnectionCount,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """user-needs 20: as many as run at a time, under CONN_MAX_AGE None too; the recorder and the
    housekeeping have theirs."""
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", None)
    seen: list[int] = []

    async def uses_orm(payload: dict[str, Any], ctx: JobContext) -> None:
        await Order.objects.acreate(tenant_id="acme", number="1")
        await asyncio.sleep(0)
        await Order.objects.acount()
        seen.append(handler_threads())

    job = define(uses_orm, name="uses-orm")
    connections.close_all()
    before, others = connection_count(), handler_threads()
    running = host("worker", concurrency=CONCURRENCY)
    dispatch_many(job, [{}] * JOBS, tenant_id="acme")
    wait_until(
        lambda: JobRun.objects.filter(status="completed").count() == JOBS,
        description="all are on record", timeout=30,
    )  # fmt: skip
    connections.close_all()
    connected = connection_count()
    assert max(seen) - others <= CONCURRENCY
    if before is not None and connected is not None:
        assert connected - before <= CONCURRENCY + 4
    running.stop()
    wait_until(lambda: handler_threads() <= others, description="the threads have ended")
    connections.close_all()
    wait_until(lambda: connection_count() == before, description="all connections are closed")
    assert Order.objects.count() == JOBS
