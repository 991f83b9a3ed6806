"""What one run leaves behind is not there for the next (P34, P106, user-needs 22-23)."""

from __future__ import annotations

import pytest
from asgiref.sync import async_to_sync
from django.db import connections

from tests.app.jobs import leaks_context, leaks_context_async, reads_context, reads_context_async
from tests.app.models import Effect, Order
from tests.helpers.fixtures import ConnectionCount
from tests.helpers.waiting import wait_until
from tests.integration.worker.host_thread import StartHost, ended_run, found

CLEAN = {
    "language": "en",
    "timezone": "Europe/Berlin",
    "probe": "clean",
    "autocommit": True,
    "in_atomic_block": False,
}


@pytest.mark.parametrize("leave", ["atomic", "autocommit"])
def test_nothing_leaks_from_run_to_run(leave: str, host: StartHost) -> None:
    """One after the other in one process, so that each gets the thread of the one before."""
    host("worker", concurrency=1)
    tenants = iter(["acme", "globex", "initech"] * 4)
    read: list[tuple[str, str]] = []
    for leak in (leaks_context, leaks_context_async, leaks_context):
        for reader in (reads_context, reads_context_async):
            tenant = next(tenants)
            ended_run(leak.dispatch({"leave": leave}, tenant_id=next(tenants)).job_id)
            dispatched = reader.dispatch({}, tenant_id=tenant)
            assert ended_run(dispatched.job_id).status == "completed"
            read.append((dispatched.job_id, tenant))
    for job_id, tenant in read:
        for effect in Effect.objects.filter(job_id=job_id, key="read"):
            seen = found(effect.value)
            assert seen == seen | CLEAN | {"tenant_id": tenant}
    assert Effect.objects.filter(key="read").count() == 9
    for effect in Effect.objects.filter(key="leaked"):
        seen = found(effect.value)
        assert seen == seen | CLEAN
    assert not Order.objects.exists(), "what was never committed is not there"


def test_connections_are_bounded_by_what_runs(
    host: StartHost, connection_count: ConnectionCount
) -> None:
    """user-needs 20: after as many async runs as sync ones, each of which used the ORM."""
    connections.close_all()
    before = connection_count()
    running = host("worker", concurrency=3)
    ids = [
        job.dispatch({}, tenant_id="acme").job_id
        for _ in range(15)
        for job in (reads_context, reads_context_async)
    ]
    assert {ended_run(job_id).status for job_id in ids} == {"completed"}
    running.stop()
    connections.close_all()
    wait_until(lambda: connection_count() == before, description="all connections are closed")
    assert async_to_sync(_count)() == 45


async def _count() -> int:
    return await Effect.objects.filter(key="read").acount()
