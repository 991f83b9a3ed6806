"""Jobs that dispatch jobs: what goes along from one to the next (B159, B168, B170-B175)."""

from __future__ import annotations

from typing import Any

import pytest

from kumiko_django import JobContext, ScopeError, dispatch
from kumiko_django.history.models import JobRun
from kumiko_django.types import ambient
from kumiko_django.types.origin import WriteOrigin
from tests.app.jobs import chain, chain_async, chain_in_transaction, record_async
from tests.app.models import Effect
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.waiting import wait_until
from tests.integration.worker.host_thread import Define, StartHost, ended_run, found


@pytest.mark.parametrize("link", [chain, chain_async], ids=["sync", "async"])
def test_a_follow_up_belongs_to_the_same_chain(link: Any, host: StartHost) -> None:
    """B030, B159, B168."""
    host("worker")
    first = link.dispatch({"payload": {"key": "end"}}, tenant_id="globex", triggered_by="user-7")
    start = ended_run(first.job_id)
    end = ended_run(found(Effect.objects.get(key="chained").value))
    effect = Effect.objects.get(key="end")
    assert effect.value
    assert (end.tenant_id, end.triggered_by_id) == ("globex", "user-7")
    assert end.correlation_id == start.correlation_id
    assert end.correlation_id
    assert effect.tenant_id == "globex"
    assert effect.value["context"]["request_id"] != end.correlation_id


def test_an_anonymous_origin_passes_through_every_job(
    host: StartHost, define: Define, queue_state: QueueStateFactory
) -> None:
    """B170, B172, B175: the root stays, the last job is noted; a user's origin is not carried."""
    seen: list[WriteOrigin | None] = []

    def look(payload: dict[str, Any], ctx: JobContext) -> None:
        seen.append(ambient.write_origin.get())

    def link(payload: dict[str, Any], ctx: JobContext) -> str:
        seen.append(ambient.write_origin.get())
        return ctx.dispatch(end).job_id

    end = define(look, name="end")
    start = define(link, name="start")
    host("worker")
    for root in ("anonymous", "user"):
        seen.clear()
        with ambient.entered({ambient.write_origin: WriteOrigin(root)}):
            first = dispatch(start, tenant_id="acme")
        ended_run(str(ended_run(first.job_id).result))
        if root == "anonymous":
            assert seen == [
                WriteOrigin("anonymous", "testapp:job:start"),
                WriteOrigin("anonymous", "testapp:job:end"),
            ]
        else:
            assert seen == [None, None]


def test_a_transaction_of_a_handler_holds_for_its_dispatches(host: StartHost) -> None:
    """user-needs 1: after commit the row is there; a rollback leaves no job."""
    host("worker")
    kept = chain_in_transaction.dispatch({"number": "1"}, tenant_id="acme")
    undone = chain_in_transaction.dispatch({"number": "2", "rollback": True}, tenant_id="acme")
    assert {ended_run(d.job_id).status for d in (kept, undone)} == {"completed"}
    orders = Effect.objects.filter(key="order")
    order = found(wait_until(orders.all().first, description="the follow-up has run"))
    assert order.value is True
    wait_until(
        lambda: not JobRun.objects.filter(status="running").exists(), description="all have ended"
    )
    assert JobRun.objects.filter(job_name="testapp:job:find-order").count() == 1


def test_a_run_dispatches_for_its_own_tenant_only(host: StartHost, define: Define) -> None:
    """P67: a handler cannot reach another tenant by naming it."""

    def crosses(payload: dict[str, Any], ctx: JobContext) -> None:
        ctx.dispatch(record_async, {}, tenant_id="globex")

    job = define(crosses)
    host("worker")
    run = ended_run(dispatch(job, tenant_id="acme").job_id)
    assert run.status == "failed"
    assert run.error.startswith(ScopeError.__name__)
    assert not Effect.objects.filter(tenant_id="globex").exists()


def test_many_follow_ups_at_once(host: StartHost, define: Define) -> None:
    def fans(payload: dict[str, Any], ctx: JobContext) -> list[str]:
        jobs = ctx.dispatch_many("testapp:job:record", [{"key": f"n{n}"} for n in range(5)])
        return [dispatched.job_id for dispatched in jobs]

    async def fans_async(payload: dict[str, Any], ctx: JobContext) -> list[str]:
        jobs = await ctx.adispatch_many("testapp:job:record", [{"key": f"a{n}"} for n in range(5)])
        return [dispatched.job_id for dispatched in jobs]

    jobs = define(fans), define(fans_async)
    host("worker")
    for job in jobs:
        run = ended_run(dispatch(job, tenant_id="initech").job_id)
        for job_id in found(run.result):
            follow_up = ended_run(job_id)
            assert (follow_up.tenant_id, follow_up.correlation_id) == (
                "initech",
                run.correlation_id,
            )
    assert Effect.objects.filter(tenant_id="initech").count() == 10
