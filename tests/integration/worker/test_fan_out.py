"""From a dispatch to a run for every tenant (B008, B037, B061-B071, P39-P47)."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import transaction
from pytest_django import Settings

from kumiko_django import (
    SYSTEM,
    Backoff,
    JobContext,
    On,
    SettingsError,
    adispatch,
    current_tenant_id,
    dispatch,
    dispatch_many,
    emit,
    signals,
    system_scope,
    tenant_scope,
)
from kumiko_django.broker.keys import child_id
from kumiko_django.history.models import JobRun
from kumiko_django.types import ambient
from kumiko_django.types.origin import WriteOrigin
from tests.app.tenants import TENANT_IDS
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.waiting import wait_until
from tests.integration.worker.host_thread import (
    Define,
    StartHost,
    add_raw,
    ended_run,
    ended_runs,
)

NOTHING_ELSE = {"parked": 0, "skipped": 0, "already_there": 0}


def look(payload: dict[str, Any], ctx: JobContext) -> list[Any]:
    """Answer what can be seen of the tenant."""
    return [ctx.tenant_id, current_tenant_id(), payload]


def fails(payload: dict[str, Any], ctx: JobContext) -> None:
    raise ValueError("on purpose")


def test_a_dispatch_makes_one_wrapper_and_a_child_for_each_tenant(
    host: StartHost, define: Define, queue_state: QueueStateFactory
) -> None:
    """B008, B037, B039, B061, B064, B065, B069, B071, B171, P43, P44: with all that the caller
    said."""
    job = define(look, name="bill", lane="api", per_tenant=True)
    around: dict[Any, Any] = {
        ambient.correlation_id: "chain-1", ambient.write_origin: WriteOrigin("anonymous"),
    }  # fmt: skip
    with ambient.entered(around):
        dispatched = dispatch(job, {"n": 1}, triggered_by="user-7")
    assert (dispatched.status, queue_state("api").wait) == ("queued", [dispatched.job_id])
    stored = queue_state("api").job(dispatched.job_id)
    assert stored.name == "_perTenant:testapp:job:bill"
    assert stored.opts["attempts"] == 3
    assert stored.data == {
        "n": 1, "_v": 1, "_tenantId": SYSTEM, "_triggeredById": "user-7",
        "_correlationId": "chain-1", "_writeOrigin": {"root": "anonymous"},
    }  # fmt: skip
    host("api", "worker")
    wrapper = ended_run(dispatched.job_id)
    assert (wrapper.job_name, wrapper.lane, wrapper.tenant_id, wrapper.status) == (
        stored.name, "api", SYSTEM, "completed",
    )  # fmt: skip
    assert wrapper.result == {**NOTHING_ELSE, "planned": 3, "enqueued": 3}
    assert wrapper.progress == {"done": 3, "total": 3}
    assert (wrapper.payload, wrapper.parent) == ({"n": 1}, None)
    for tenant in TENANT_IDS:
        assert child_id(dispatched.job_id, tenant) == f"child-{dispatched.job_id}-{tenant}"
        run = ended_run(f"child-{dispatched.job_id}-{tenant}")
        assert (run.job_name, run.lane, run.tenant_id) == ("testapp:job:bill", "api", tenant)
        assert (run.status, run.result) == ("completed", [tenant, tenant, {"n": 1}])
        assert (run.parent, run.triggered_by_id, run.correlation_id) == (
            wrapper.id, "user-7", "chain-1",
        )  # fmt: skip
    assert JobRun.objects.count() == 4
    assert queue_state("worker").counts() == dict.fromkeys(queue_state("worker").counts(), 0)


def test_children_are_queued_as_the_definition_says(
    host: StartHost, define: Define, queue_state: QueueStateFactory
) -> None:
    """B068, B081: retries and backoff; they are tried again each for itself, by their tenant."""
    job = define(fails, name="bill", per_tenant=True, retries=1, backoff=Backoff.fixed(0.05))
    host("worker")
    wrapper = dispatch(job).job_id
    assert ended_run(wrapper).status == "completed", "the children's failures are theirs"
    for tenant in TENANT_IDS:
        runs = ended_runs(child_id(wrapper, tenant), 2)
        assert [(run.attempt, run.max_attempts, run.final) for run in runs] == [
            (1, 2, False),
            (2, 2, True),
        ]
        stored = queue_state().job(child_id(wrapper, tenant))
        assert stored.opts["backoff"] == {"type": "fixed", "delay": 50}
        assert stored.opts["removeOnComplete"] == {"age": 86400}
        assert len({run.parent for run in runs}) == 1


@pytest.mark.parametrize(
    ("defined", "given", "stored"),
    [
        ("low", None, {"priority": 1000}),
        ("low", "normal", {}),
        ("normal", "high", {"lifo": True}),
        (7, None, {"priority": 7}),
        ("normal", 9, {"priority": 9}),
    ],
)
def test_the_priority_of_a_dispatch_is_that_of_wrapper_and_children(
    defined: Any, given: Any, stored: dict[str, Any], host: StartHost, define: Define,
    queue_state: QueueStateFactory,
) -> None:  # fmt: skip
    """B039, P44: dispatching for every tenant does not drop it."""
    job = define(look, name="bill", per_tenant=True, priority=defined)
    wrapper = dispatch(job, priority=given).job_id
    host("worker")
    for job_id in (wrapper, child_id(wrapper, "acme")):
        ended_run(job_id)
        options = queue_state().job(job_id).opts
        assert {k: v for k, v in options.items() if k in ("priority", "lifo")} == stored


def test_two_hundred_tenants_never_see_one_another(
    host: StartHost, define: Define, settings: Settings
) -> None:
    """user-needs 23: sixteen at a time; in the context, after a pause and in the run's thread."""
    tenants = [f"t{number}" for number in range(200)]
    settings.KUMIKO = {**settings.KUMIKO, "TENANTS": lambda: tenants}

    async def looks(payload: dict[str, Any], ctx: JobContext) -> list[Any]:
        seen = [ctx.tenant_id, current_tenant_id()]
        ctx.log.info("for", tenant=current_tenant_id())
        await asyncio.sleep(0.001)
        seen += [current_tenant_id(), await sync_to_async(current_tenant_id)()]
        return seen

    job = define(looks, name="bill", per_tenant=True)
    host("worker", concurrency=16)
    wrapper = dispatch(job).job_id
    parent = ended_run(wrapper)
    ended = JobRun.objects.filter(parent=parent.id, status="completed")
    wait_until(lambda: ended.count() == 200, description="all have run", timeout=30)
    assert {run.tenant_id: run.result for run in ended} == {t: [t] * 4 for t in tenants}
    logged = {run.tenant_id: [line.data for line in run.logs.all()] for run in ended}
    assert logged == {t: [{"tenant": t}] for t in tenants}


def test_a_delay_is_the_wrappers(
    host: StartHost, define: Define, queue_state: QueueStateFactory
) -> None:
    """The tenants are asked for when it is due; its children are then due at once."""
    job = define(look, name="bill", per_tenant=True)
    host("worker")
    wrapper = dispatch(job, delay=0.3).job_id
    run = ended_run(wrapper)
    assert (run.started_at - run.enqueued_at).total_seconds() >= 0.3
    ended_run(child_id(wrapper, "acme"))
    assert queue_state().job(child_id(wrapper, "acme")).delay == 0


def test_children_are_spread_evenly_over_time(
    host: StartHost, define: Define, queue_state: QueueStateFactory, settings: Settings
) -> None:
    """P46: the first is due at once, and the others at equal distances, in the tenants' order."""
    tenants = [f"t{number}" for number in range(600)]
    settings.KUMIKO = {**settings.KUMIKO, "TENANTS": lambda: tenants}
    job = define(look, name="bill", per_tenant=True, spread=dt.timedelta(hours=1))
    host("worker")
    wrapper = dispatch(job).job_id
    assert ended_run(wrapper).result == {**NOTHING_ELSE, "planned": 600, "enqueued": 600}
    ended_run(child_id(wrapper, "t0"))
    ids = [child_id(wrapper, tenant) for tenant in tenants]
    assert queue_state().delayed == ids[1:]
    stored = [queue_state().job(job_id) for job_id in ids]
    assert [job.delay for job in stored] == [6000 * number for number in range(600)]
    assert len({job.created_at for job in stored}) == 1


def test_the_scope_says_whether_it_is_for_one_tenant_or_for_all(
    define: Define, queue_state: QueueStateFactory
) -> None:
    """P45: with a tenant it runs for that one; without, or for SYSTEM, for every tenant."""
    name = define(look, name="bill", per_tenant=True).qualified_name
    one = [dispatch(name, tenant_id="acme")]
    with tenant_scope("globex"):
        one.append(dispatch(name))
        everyone = [dispatch(name, tenant_id=SYSTEM)]
    with system_scope("a test"):
        everyone.append(dispatch(name))
        one.append(dispatch(name, tenant_id="initech"))
    everyone += [dispatch(name), dispatch(name, tenant_id=SYSTEM), *dispatch_many(name, [{}, {}])]
    jobs = {dispatched.job_id: queue_state().job(dispatched.job_id) for dispatched in one}
    assert [(job.name, job.data["_tenantId"]) for job in jobs.values()] == [
        (name, "acme"), (name, "globex"), (name, "initech"),
    ]  # fmt: skip
    for dispatched in everyone:
        job = queue_state().job(dispatched.job_id)
        assert (job.name, job.data["_tenantId"]) == (f"_perTenant:{name}", SYSTEM)


def test_an_event_with_a_tenant_is_for_that_one_and_one_without_for_all(
    host: StartHost, define: Define, queue_state: QueueStateFactory
) -> None:
    """P45, B118: and the event goes to the children; repeated, nothing runs again (P65)."""
    name = define(look, name="bill", per_tenant=True, trigger=On("paid")).qualified_name
    (one,) = emit("paid", {"n": 1}, tenant_id="acme")
    assert queue_state().job(one.job_id).name == name
    (everyone,) = emit("paid", {"n": 1}, event_id="e-1")
    assert queue_state().job(everyone.job_id).name == f"_perTenant:{name}"
    (again,) = emit("paid", {"n": 1}, event_id="e-1")
    assert again.job_id == everyone.job_id
    host("worker")
    assert ended_run(one.job_id).tenant_id == "acme"
    parent = ended_run(everyone.job_id)
    runs = [ended_run(child_id(everyone.job_id, tenant)) for tenant in TENANT_IDS]
    assert {(run.status, run.trigger, run.parent) for run in runs} == {
        ("completed", "paid", parent.id)
    }
    stored = queue_state().job(child_id(everyone.job_id, "acme"))
    assert stored.data["_triggerEvent"] == {"id": "e-1", "headers": {}}
    assert JobRun.objects.count() == 5


@pytest.mark.django_db(transaction=True)
async def test_async_code_and_transactions_make_wrappers_too(
    define: Define, queue_state: QueueStateFactory
) -> None:
    """user-needs 3: the same door."""
    job = define(look, name="bill", per_tenant=True)
    dispatched = await adispatch(job)
    assert queue_state().job(dispatched.job_id).name.startswith("_perTenant:")


@pytest.mark.django_db(transaction=True)
def test_a_wrapper_waits_for_the_commit(define: Define, queue_state: QueueStateFactory) -> None:
    job = define(look, name="bill", per_tenant=True)
    with transaction.atomic():
        dispatched = dispatch(job)
        assert (dispatched.reason, queue_state().pending()) == ("after-commit", 0)
    assert queue_state().wait == [dispatched.job_id]


def test_without_tenancy_a_dispatch_is_refused(
    define: Define, settings: Settings, queue_state: QueueStateFactory
) -> None:
    """Nobody would know for whom; the message names job, option and setting."""
    job = define(look, name="bill", per_tenant=True)
    settings.KUMIKO = {**settings.KUMIKO, "TENANTS": None}
    with pytest.raises(SettingsError, match=r'bill runs for every tenant.*KUMIKO\["TENANTS"\]'):
        dispatch(job)
    assert queue_state().pending() == 0


def test_a_wrapper_of_another_producer_is_fanned_out(
    host: StartHost, define: Define, queue_prefix: str, redis_url: str,
    queue_state: QueueStateFactory,
) -> None:  # fmt: skip
    """B064, B067, B068: plain data, maybe under an old name; the definition has the say of the
    rest."""
    define(look, name="bill", per_tenant=True, priority="low", aliases=["invoice"])
    added: list[Any] = [("_perTenant:testapp:job:invoice", {"n": 1}, {})]
    (wrapper,) = add_raw(redis_url, f"{queue_prefix}-worker", added)
    host("worker")
    assert ended_run(wrapper).job_name == "_perTenant:testapp:job:bill"
    run = ended_run(child_id(wrapper, "acme"))
    assert (run.job_name, run.result) == ("testapp:job:bill", ["acme", "acme", {"n": 1}])
    assert queue_state().job(child_id(wrapper, "acme")).opts["priority"] == 1000


def test_a_worker_whose_definition_is_not_for_every_tenant_yet_fans_out(
    host: StartHost, define: Define, queue_prefix: str, redis_url: str
) -> None:
    """user-needs 7: in a deploy the dispatcher may be newer than the worker; nothing is lost."""
    define(look, name="bill")
    added: list[Any] = [("_perTenant:testapp:job:bill", {"_v": 1, "_tenantId": SYSTEM}, {})]
    (wrapper,) = add_raw(redis_url, f"{queue_prefix}-worker", added)
    host("worker")
    assert ended_run(wrapper).result == {**NOTHING_ELSE, "planned": 3, "enqueued": 3}
    assert {ended_run(child_id(wrapper, tenant)).tenant_id for tenant in TENANT_IDS} == set(
        TENANT_IDS
    )


def test_tenants_that_cannot_be_listed_are_seen_and_tried_again(
    host: StartHost, define: Define, settings: Settings
) -> None:
    """P39, P43: three attempts though the job has none to spare; the worker lives on."""
    calls: list[int] = []

    def tenants() -> list[str]:
        calls.append(1)
        if len(calls) < 3:
            raise OSError("no list today")
        return ["acme"]

    settings.KUMIKO = {**settings.KUMIKO, "TENANTS": tenants}
    job = define(look, name="bill", per_tenant=True, retries=2, backoff=Backoff.fixed(0.05))
    host("worker")
    wrapper = dispatch(job).job_id
    runs = ended_runs(wrapper, 3)
    assert [(run.status, run.error) for run in runs] == [
        ("failed", "OSError: no list today"),
        ("failed", "OSError: no list today"),
        ("completed", ""),
    ]
    assert ended_run(child_id(wrapper, "acme")).parent == runs[2].id


def test_a_fan_out_is_tried_again_though_its_job_is_not(
    host: StartHost, define: Define, settings: Settings
) -> None:
    """P39: what broke off would leave tenants out, and nobody would see it."""
    calls: list[int] = []

    def tenants() -> list[str]:
        calls.append(1)
        if len(calls) == 1:
            raise OSError("no list today")
        return ["acme"]

    settings.KUMIKO = {**settings.KUMIKO, "TENANTS": tenants}
    job = define(look, name="bill", per_tenant=True)
    host("worker")
    wrapper = dispatch(job).job_id
    runs = ended_runs(wrapper, 2, timeout=10)
    assert [(run.status, run.final) for run in runs] == [("failed", False), ("completed", True)]
    assert ended_run(child_id(wrapper, "acme")).status == "completed"


def test_a_tenant_that_is_closed_in_between_is_skipped(
    host: StartHost, define: Define, settings: Settings
) -> None:
    """P47: with its reason and the signal ``job_skipped``; the other tenants run."""
    active, skipped = ["a", "b", "c", "d"], []

    def receive(run: Any, outcome: Any, **_: Any) -> None:
        skipped.append((run.tenant_id, outcome.reason, run.final))

    settings.KUMIKO = {**settings.KUMIKO, "TENANTS": lambda: list(active)}
    job = define(look, name="bill", per_tenant=True, spread=8)
    signals.job_skipped.connect(receive)
    try:
        host("worker")
        wrapper = dispatch(job).job_id
        ended_run(wrapper)
        active.remove("b")
        runs = {tenant: ended_run(child_id(wrapper, tenant)) for tenant in "abc"}
    finally:
        signals.job_skipped.disconnect(receive)
    assert {tenant: run.status for tenant, run in runs.items()} == {
        "a": "completed", "b": "skipped", "c": "completed",
    }  # fmt: skip
    assert runs["b"].reason == "the tenant is no longer active"
    wait_until(lambda: skipped, description="the signal was sent")
    assert skipped == [("b", "the tenant is no longer active", True)]
