"""An event, and the jobs that it queues (B115-B119, B123, B229, P64)."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.db import transaction
from django.db.transaction import TransactionManagementError
from django.utils.connection import ConnectionDoesNotExist
from pytest_django import Settings

from kumiko_django import (
    SYSTEM,
    Backoff,
    On,
    PayloadError,
    ScopeError,
    SettingsError,
    aemit,
    emit,
    system_scope,
    tenant_scope,
)
from kumiko_django.types import ambient
from kumiko_django.types.ambient import TraceContext
from kumiko_django.types.origin import WriteOrigin
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.queues import QueueState
from tests.integration.events.listeners import Emit, both, idle, names
from tests.integration.worker.host_thread import Define

pytestmark = pytest.mark.django_db(transaction=True)


@both
def test_every_job_that_listens(send: Emit, define: Define, queue: QueueState) -> None:
    """B115, B116: in the order of registration; by name or list, and by what the payload says."""
    define(idle, name="first", trigger=On("invoice.paid"))
    define(idle, name="other", trigger=On("invoice.sent"))
    define(idle, name="list", trigger=On("invoice.sent", "invoice.paid"))
    define(idle, name="where", trigger=On("invoice.paid", where={"n": 1}))
    define(idle, name="strict", trigger=On("invoice.paid", where={"n": "1"}))
    define(idle, name="manual")
    answers = send("invoice.paid", {"n": 1}, tenant_id="acme")
    assert names(answers, queue) == ["first", "list", "where"]
    assert queue.wait == [answer.job_id for answer in answers]
    assert {(answer.status, answer.reason, bool(answer)) for answer in answers} == {
        ("queued", None, True)
    }
    assert names(send("invoice.paid", {"n": True}, tenant_id="acme"), queue) == ["first", "list"]


@both
def test_nobody_listens(send: Emit, queue: QueueState) -> None:
    """B123: no error, and nothing happens."""
    assert send("nobody.cares", {"n": 1}, tenant_id="acme") == []
    assert send("order.changed", {"country": "FR"}, tenant_id="acme") == []
    assert queue.pending() == 0


@both
def test_what_is_stored(send: Emit, define: Define, queue: QueueState) -> None:
    """B081, B117, B118, B171: payload and metadata; the definition's attempts, pause and
    priority."""
    define(
        idle,
        name="listens",
        trigger=On("a", "b"),
        retries=2,
        backoff=Backoff.fixed(3),
        priority="low",
    )
    values: dict[Any, Any] = {
        ambient.trace: TraceContext("t" * 32, "s" * 16),
        ambient.correlation_id: "request-7",
        ambient.write_origin: WriteOrigin("anonymous"),
    }
    with ambient.entered(values), tenant_scope("globex"):
        (answer,) = send("b", {"n": 1}, event_id=7, headers={"h": True}, triggered_by="42")
    stored = queue.job(answer.job_id)
    assert stored.data == {
        "n": 1,
        "_tenantId": "globex",
        "_triggeredById": "42",
        "_triggerName": "b",
        "_triggerEvent": {"id": "7", "headers": {"h": True}},
        "_traceContext": {"traceId": "t" * 32, "spanId": "s" * 16},
        "_correlationId": "request-7",
        "_writeOrigin": {"root": "anonymous"},
        "_v": 1,
    }
    assert stored.opts["attempts"] == 3
    assert stored.opts["backoff"] == {"type": "fixed", "delay": 3000}
    assert stored.priority == 1000
    (answer,) = send("a", tenant_id="acme")
    assert queue.job(answer.job_id).data == {"_tenantId": "acme", "_triggerName": "a", "_v": 1}


@both
def test_both_lanes(send: Emit, queue_state: QueueStateFactory) -> None:
    """B028, B033, B229: each job to its own."""
    worker, api = send("order.placed", {"country": "DE"}, tenant_id="acme")
    assert queue_state("worker").wait == [worker.job_id]
    assert queue_state("api").wait == [api.job_id]


# -------------------------------------------------------------------------------------- tenants


@both
def test_the_tenant_that_it_happened_to(send: Emit, define: Define, queue: QueueState) -> None:
    """B117, P11, P45: given or ambient; a job of the system hears of it and belongs to none."""
    define(idle, name="theirs", trigger=On("a"))
    define(idle, name="systems", trigger=On("a"), tenant="system")

    def tenants(**more: Any) -> list[Any]:
        return [queue.job(answer.job_id).data["_tenantId"] for answer in send("a", **more)]

    assert tenants(tenant_id="acme") == ["acme", SYSTEM]
    with tenant_scope("globex"):
        assert tenants() == ["globex", SYSTEM]
    with system_scope("a sweep"):
        assert tenants(tenant_id="acme") == ["acme", SYSTEM]
    assert tenants(tenant_id=SYSTEM) == [SYSTEM, SYSTEM]


@both
def test_a_wrong_tenant_is_the_callers(send: Emit, queue: QueueState) -> None:
    """P11: refused before anything is sent, whoever listens."""
    for event in ("order.placed", "nobody.cares"):
        with tenant_scope("acme"), pytest.raises(ScopeError, match=rf"event {event}.*'globex'"):
            send(event, {"country": "DE"}, tenant_id="globex")
        with pytest.raises(ScopeError, match="empty"):
            send(event, {"country": "DE"}, tenant_id="")
    assert queue.pending() == 0


@both
def test_without_tenancy(send: Emit, settings: Settings, queue: QueueState) -> None:
    """design 3: everything belongs to SYSTEM; a tenant is a mistake."""
    settings.KUMIKO = {**settings.KUMIKO, "TENANTS": None}
    answers = send("order.changed", {"country": "DE"})
    assert queue.job(answers[0].job_id).data["_tenantId"] == SYSTEM
    with pytest.raises(ScopeError, match="tenancy is off"):
        send("nobody.cares", tenant_id="acme")


# --------------------------------------------------------------------------------- transactions


@both
def test_it_waits_for_the_commit(send: Emit, queue: QueueState) -> None:
    """P64, user-needs 3: through the same door as a dispatch."""

    class Oops(Exception):
        pass

    for event_id in (None, "e-1"):
        with contextlib.suppress(Oops), transaction.atomic():
            send("order.changed", {"country": "DE"}, tenant_id="acme", event_id=event_id)
            raise Oops
        assert queue.pending() == 0
        with transaction.atomic():
            (answer,) = send(
                "order.changed", {"country": "DE"}, tenant_id="acme", event_id=event_id
            )
            assert (answer.status, answer.reason, bool(answer)) == ("queued", "after-commit", True)
            assert queue.pending() == 0
        assert queue.wait[-1] == answer.job_id
        queue.client.delete(queue.key("wait"))


@both
def test_what_no_job_could_do_is_raised(send: Emit, settings: Settings, queue: QueueState) -> None:
    """P64: the caller's mistakes are no failures of single jobs."""
    order = ("order.placed", {"country": "DE"})
    with pytest.raises(ConnectionDoesNotExist, match="elsewhere"):
        send(*order, tenant_id="acme", using="elsewhere")
    transaction.set_autocommit(False)
    try:
        with pytest.raises(TransactionManagementError, match="Autocommit is off"):
            send(*order, tenant_id="acme")
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    with pytest.raises(PayloadError, match="reserved"):
        send("nobody.cares", {"_tenantId": "acme"}, tenant_id="acme")
    with pytest.raises(ValueError, match=r"event order.placed: triggered_by must be a user"):
        send(*order, tenant_id="acme", triggered_by=1.5)
    assert queue.pending() == 0
    settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": "redis://h:port"}
    with pytest.raises(SettingsError, match="no usable Redis URL"):
        send(*order, tenant_id="acme")


async def test_emit_on_a_running_loop_is_refused(queue: QueueState) -> None:
    """design 2: whether or not anybody listens today."""
    for event in ("order.placed", "nobody.cares"):
        with pytest.raises(SynchronousOnlyOperation, match="await aemit"):
            emit(event, {"country": "DE"}, tenant_id="acme")
    assert await aemit("order.changed", {"country": "DE"}, tenant_id="acme")
    assert queue.pending() == 1


async def test_async_code_between_sync_code(queue: QueueState) -> None:
    """P64: the transaction is that of the thread which asgiref takes for both."""

    def work() -> None:
        with transaction.atomic():
            async_to_sync(aemit)("order.changed", {"country": "DE"}, tenant_id="acme")
            assert queue.pending() == 0

    await sync_to_async(work)()
    assert queue.pending() == 1
