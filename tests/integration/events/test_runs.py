"""What a handler sees of the event that has started it, and what the history keeps (B120-B122)."""

from __future__ import annotations

import pytest

from kumiko_django import JobContext, On, emit
from tests.app.jobs import hears_order
from tests.app.models import Effect
from tests.helpers.waiting import wait_until
from tests.integration.events.listeners import Emit, both
from tests.integration.worker.host_thread import Define, StartHost, ended_run

pytestmark = pytest.mark.django_db(transaction=True)


@both
def test_the_context_and_the_history(send: Emit, host: StartHost) -> None:
    """B117, B120, B121, B122: the name always, the event where it has an id."""
    host("worker")
    payload = {"country": "DE"}
    (bare,) = send("order.changed", payload, tenant_id="acme")
    (full,) = send("order.changed", payload, tenant_id="acme", event_id=5, headers={"h": 1.5})
    for answer, event in ((bare, None), (full, {"id": "5", "headers": {"h": 1.5}})):
        run = ended_run(answer.job_id)
        assert (run.status, run.trigger, run.tenant_id) == ("completed", "order.changed", "acme")
        value = Effect.objects.get(job_id=answer.job_id).value
        assert value is not None
        assert (value["name"], value["event"], value["payload"]) == (
            "order.changed",
            event,
            payload,
        )


def test_a_dispatch_of_the_same_job_has_no_trigger(host: StartHost) -> None:
    """B121: by hand, and from a handler that an event has started."""
    host("worker")
    sent = hears_order.dispatch({}, tenant_id="acme")
    assert ended_run(sent.job_id).trigger == ""
    value = Effect.objects.get(job_id=sent.job_id).value
    assert value is not None
    assert (value["name"], value["event"]) == (None, None)


def test_an_event_of_a_handler(define: Define, host: StartHost) -> None:
    """B117, B168: tenant, user and correlation follow; the trigger is the new event's."""
    seen: list[JobContext] = []

    def emits(payload: object, ctx: JobContext) -> None:
        seen.append(ctx)
        emit("second", {"n": 2}, event_id=f"{ctx.job_id}:second")

    def listens(payload: object, ctx: JobContext) -> None:
        seen.append(ctx)
        ctx.dispatch(last.qualified_name)

    define(emits, name="emits", trigger=On("first"))
    define(listens, name="listens", trigger=On("second"))
    last = define(lambda payload, ctx: seen.append(ctx), name="last")
    host("worker")
    (answer,) = emit("first", tenant_id="globex", triggered_by=7)
    wait_until(lambda: len(seen) == 3, description="all three have run")
    assert [ctx.trigger_name for ctx in seen] == ["first", "second", None]
    assert {ctx.tenant_id for ctx in seen} == {"globex"}
    assert {ctx.triggered_by and ctx.triggered_by.id for ctx in seen} == {"7"}
    assert len({ctx.correlation_id for ctx in seen}) == 1
    event = seen[1].trigger_event
    assert event is not None
    assert event.id == f"{answer.job_id}:second"
    assert seen[2].trigger_event is None
