"""An event that is emitted again runs once (P65)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections, transaction

from kumiko_django import On, emit, tenant_scope
from kumiko_django.history.models import JobRun
from tests.app.models import Effect
from tests.helpers.fixtures import QueueStateFactory, RunJobsFactory
from tests.helpers.processes import run_python
from tests.helpers.queues import QueueState
from tests.helpers.waiting import wait_until
from tests.integration.events.listeners import Emit, both, idle
from tests.integration.worker.host_thread import Define, StartHost, ended_run

pytestmark = pytest.mark.django_db(transaction=True)


@both
def test_while_it_waits(send: Emit, queue: QueueState) -> None:
    """P65: the same ids in the answers, and what was said first stays."""
    first = send("order.changed", {"country": "DE", "n": 1}, tenant_id="acme", event_id="e")
    second = send("order.changed", {"country": "DE", "n": 2}, tenant_id="acme", event_id="e")
    assert [answer.job_id for answer in first] == [answer.job_id for answer in second]
    assert all(second)
    assert queue.wait == [first[0].job_id]
    assert queue.job(first[0].job_id).data["n"] == 1


@both
def test_what_makes_it_another(send: Emit, define: Define, queue: QueueState) -> None:
    """P65: its id, its name, its tenant, and the job; without an id each is its own."""
    define(idle, name="one", trigger=On("a", "b"))
    define(idle, name="two", trigger=On("a"))
    for event, event_id, tenant in (
        ("a", "1", "acme"),
        ("a", "2", "acme"),
        ("b", "1", "acme"),
        ("a", "1", "globex"),
        ("a", 1, "acme"),
    ):
        send(event, event_id=event_id, tenant_id=tenant)
    assert queue.pending() == 7
    send("b", tenant_id="acme")
    send("b", tenant_id="acme")
    send("b", tenant_id="acme", headers={"h": 1})
    send("b", tenant_id="acme", headers={"h": 1})
    assert queue.pending() == 11


@both
@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": "skip"},
        {"concurrency": "throttle", "throttle": 60},
        {"concurrency": "replace"},
        {"concurrency": "sequential"},
        {"max_per_tenant": 1},
    ],
    ids=lambda options: " ".join(map(str, options.values())),
)
def test_of_a_job_that_lets_in_only_one(
    options: dict[str, Any], send: Emit, define: Define, queue: QueueState
) -> None:
    """P65: it is there already, which is no reason to say that it was not accepted."""
    define(idle, name="one", trigger=On("a"), **options)
    first = send("a", tenant_id="acme", event_id="e")
    again = send("a", tenant_id="acme", event_id="e")
    assert again == first
    assert all(again)
    assert queue.wait == [first[0].job_id]
    assert not JobRun.objects.exists()


def test_in_transactions(queue: QueueState) -> None:
    """P64, P65: twice in one, and in two."""
    with tenant_scope("acme"):
        for _ in range(2):
            with transaction.atomic():
                emit("order.changed", {"country": "DE"}, event_id="e")
                emit("order.changed", {"country": "DE"}, event_id="e")
    assert queue.pending() == 1


def test_after_it_has_run_and_after_it_has_failed(
    define: Define, host: StartHost, queue_state: QueueStateFactory
) -> None:
    """P65: as long as the queue keeps the job; a redelivery is not another attempt."""
    ran: list[str] = []

    def fails(payload: object, ctx: object) -> None:
        ran.append("failed")
        raise ZeroDivisionError

    define(lambda payload, ctx: ran.append("completed"), name="works", trigger=On("a"))
    define(fails, name="fails", trigger=On("a"))
    running = host("worker")
    for _ in range(3):
        for answer in emit("a", tenant_id="acme", event_id="e"):
            ended_run(answer.job_id)
    running.stop()
    assert sorted(ran) == ["completed", "failed"]
    assert queue_state("worker").pending() == 0


def test_at_the_same_time(queue: QueueState) -> None:
    """P65: twenty threads; Redis decides."""

    def work(number: int) -> str:
        try:
            return emit("order.changed", {"country": "DE"}, event_id="e", tenant_id="acme")[
                0
            ].job_id
        finally:
            connections.close_all()

    with ThreadPoolExecutor(20) as pool:
        ids = set(pool.map(work, range(20)))
    assert queue.wait == [*ids]


def test_from_several_processes(runjobs: RunJobsFactory, queue_state: QueueStateFactory) -> None:
    """P65, B120, B121, B122, B229: an id is the same everywhere, and both lanes run it once."""
    code = """
import django
django.setup()
from kumiko_django import emit
event = {"event_id": "e-1", "headers": {"from": "shop", "try": 2}, "triggered_by": "42"}
print(*[one.job_id for one in emit("order.placed", {"country": "DE"}, tenant_id="acme", **event)])
"""
    runjobs("all")
    with ThreadPoolExecutor(3) as pool:
        finished = list(pool.map(lambda _: run_python(code), range(3)))
    assert {one.returncode for one in finished} == {0}, finished
    assert len({one.stdout for one in finished}) == 1
    job_ids = finished[0].stdout.split()
    for job_id in job_ids:
        ended_run(job_id)
    wait_until(
        lambda: queue_state("worker").pending() + queue_state("api").pending() == 0,
        description="both lanes are empty",
    )
    heard = Effect.objects.get(key="heard")
    assert (heard.job_id, heard.tenant_id) == (job_ids[0], "acme")
    assert heard.value is not None
    assert heard.value["name"] == "order.placed"
    assert heard.value["event"] == {"id": "e-1", "headers": {"from": "shop", "try": 2}}
    assert (heard.value["payload"], heard.value["user"]) == ({"country": "DE"}, "42")
    assert Effect.objects.get(key="heard-too").value == "order.placed"
    assert Effect.objects.count() == 2
