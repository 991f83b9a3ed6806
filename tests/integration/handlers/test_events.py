"""A write that has committed is an event, which starts jobs (surroundings 6)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import AnonymousUser
from django.db import transaction
from pydantic import BaseModel

from kumiko_django import AccessDenied, JobContext, On, PayloadError, dispatch, tenant_scope
from kumiko_django.handlers import awrite, query, system_user, write
from kumiko_django.types import ambient
from tests.app.models import Order
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.queues import QueueState
from tests.helpers.waiting import wait_until
from tests.integration.worker.host_thread import Define, StartHost, ended_run
from tests.unit.handlers.kit import both_writes, defines, user

pytestmark = pytest.mark.django_db(transaction=True)

EVENT = "testapp:write:create-order"


class NewOrder(BaseModel):
    number: str
    amount: int = 1


@pytest.fixture(autouse=True)
def _listener(define: Define) -> Iterator[None]:
    """``listens`` is queued by the event; the write ``create-order`` is for staff and jobs."""
    define(lambda payload, ctx: None, name="listens", trigger=On(EVENT))

    def create(payload: NewOrder, ctx: Any) -> None:
        Order.objects.create(tenant_id=ctx.tenant_id, number=payload.number)
        if payload.amount > 5:
            raise ValueError("too much")

    defines("write", create, name="create-order", schema=NewOrder, roles=["staff", "system"])
    with tenant_scope("acme"):
        yield


def data(queue: QueueState) -> list[dict[str, Any]]:
    return [queue.job(job_id).data for job_id in queue.wait]


@both_writes
def test_a_success_starts_the_jobs_that_listen(call: Any, queue: QueueState) -> None:
    """B115-B119 for handlers: validated payload, tenant, who acts, name of the event."""
    mia = user("staff")

    with ambient.entered({ambient.correlation_id: "chain-1"}):
        call(EVENT, {"number": "A1", "unknown": "left out"}, user=mia)

    (sent,) = data(queue)
    assert {key: value for key, value in sent.items() if key != "_v"} == {
        "number": "A1",
        "amount": 1,
        "_tenantId": "acme",
        "_triggeredById": str(mia.pk),
        "_triggerName": EVENT,
        "_correlationId": "chain-1",
    }


@both_writes
def test_what_fails_or_is_refused_starts_nothing(call: Any, queue: QueueState) -> None:
    """For successful results only."""
    mia = user("staff")
    with pytest.raises(ValueError, match="too much"):
        call(EVENT, {"number": "A1", "amount": 6}, user=mia)
    with pytest.raises(PayloadError):
        call(EVENT, {}, user=mia)
    with pytest.raises(AccessDenied):
        call(EVENT, {"number": "A1"}, user=AnonymousUser())

    assert data(queue) == []
    assert not Order.objects.exists()


def test_nothing_is_sent_before_the_outermost_commit(queue: QueueState) -> None:
    """P64: a job that listens finds what was written, and a rollback leaves nothing."""
    mia = user("staff")
    with transaction.atomic():
        write(EVENT, {"number": "A1"}, user=mia)
        assert data(queue) == []
    assert len(data(queue)) == 1
    with transaction.atomic():
        write(EVENT, {"number": "A2"}, user=mia)
        transaction.set_rollback(True)
    with transaction.atomic():
        write(EVENT, {"number": "A3"}, user=mia)
        with pytest.raises(ValueError, match="too much"):
            write(EVENT, {"number": "A4", "amount": 6}, user=mia)

    assert [job["number"] for job in data(queue)] == ["A1", "A3"]
    assert list(Order.objects.values_list("number", flat=True)) == ["A1", "A3"]


@both_writes
def test_with_an_event_id_a_repetition_starts_a_job_once(call: Any, queue: QueueState) -> None:
    """P65: a job that runs twice writes twice, and starts what follows once."""
    mia = user("staff")
    for number in ("A1", "A1", "A2"):
        call(EVENT, {"number": number}, user=mia, event_id=f"job-1:{number}")

    assert sorted(job["number"] for job in data(queue)) == ["A1", "A2"]
    assert {job["_triggerEvent"]["id"] for job in data(queue)} == {"job-1:A1", "job-1:A2"}


def test_what_the_system_writes_names_who_has_caused_it(queue: QueueState) -> None:
    """P102: the system is nobody's user."""
    with ambient.entered({ambient.user_id: "7"}):
        write(EVENT, {"number": "A1"}, user=system_user("imports"))
    write(EVENT, {"number": "A2"}, user=system_user("imports"))

    by_number = {job["number"]: job.get("_triggeredById") for job in data(queue)}
    assert by_number == {"A1": "7", "A2": None}


def test_a_query_is_no_event(define: Define, queue: QueueState) -> None:
    name = defines("query", lambda payload, ctx: 5, name="total", roles=["anonymous"])
    define(lambda payload, ctx: None, name="listens-in-vain", trigger=On(name))

    assert query(name) == 5
    assert data(queue) == []


def test_what_an_anonymous_user_starts_is_gated(define: Define, queue: QueueState) -> None:
    """B170: the origin follows into the jobs."""
    name = defines("write", lambda payload, ctx: None, name="ask", roles=["anonymous"])
    define(lambda payload, ctx: None, name="answers", trigger=On(name))

    write(name, {"number": "A1"}, user=AnonymousUser())

    (sent,) = data(queue)
    assert sent["_writeOrigin"] == {"root": "anonymous"}
    assert "_triggeredById" not in sent


def test_without_redis_a_write_is_a_write(own_valkey: Any, queue_state: QueueStateFactory) -> None:
    """Who writes is not told of a queue that is away; the log and ``dispatch_failed`` are."""
    own_valkey.stop()

    write(EVENT, {"number": "A1"}, user=user("staff"))

    assert Order.objects.get().number == "A1"


# --------------------------------------------------------------------------------- through a worker


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_job_writes_and_another_hears_it(define: Define, host: StartHost, is_async: bool) -> None:
    """B163, B117, B168: written by the system for the tenant; the chain still names the user."""
    heard: list[JobContext] = []
    define(lambda payload, ctx: heard.append(ctx), name="hears", trigger=On(EVENT))

    def imports(payload: Any, ctx: JobContext) -> Any:
        return ctx.write(EVENT, {"number": "A1"}, event_id=ctx.job_id)

    async def aimports(payload: Any, ctx: JobContext) -> Any:
        return await ctx.awrite(EVENT, {"number": "A1"}, event_id=ctx.job_id)

    job = define(aimports if is_async else imports, name="imports")
    host("worker")
    sent = dispatch(job, triggered_by=7)
    assert ended_run(sent.job_id).status == "completed"
    order = Order.objects.get()
    assert (order.number, order.tenant_id) == ("A1", "acme")

    wait_until(lambda: heard, description="the event has started the job")
    (ctx,) = heard
    assert (ctx.tenant_id, ctx.trigger_name) == ("acme", EVENT)
    assert ctx.triggered_by is not None
    assert ctx.triggered_by.id == "7"
    assert ctx.trigger_event is not None
    assert ctx.trigger_event.id == sent.job_id


def test_the_async_function_in_a_task(queue: QueueState) -> None:
    """Two writes at once, each in its scope and as its user (P106)."""
    mia, tom = user("staff"), user("staff", name="tom")

    async def main() -> None:
        async def one(tenant: str, who: Any) -> None:
            async with tenant_scope(tenant):
                await awrite(EVENT, {"number": tenant}, user=who)

        await asyncio.gather(*(one(t, w) for t, w in (("acme", mia), ("globex", tom)) * 5))

    async_to_sync(main)()

    sent = {(job["number"], job["_tenantId"], job["_triggeredById"]) for job in data(queue)}
    assert sent == {("acme", "acme", str(mia.pk)), ("globex", "globex", str(tom.pk))}
    assert Order.objects.count() == 10
