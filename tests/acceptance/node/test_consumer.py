"""Node's workers take what we have queued."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from kumiko_django import (
    Backoff,
    Cron,
    Every,
    JobContext,
    dispatch,
    dispatch_many,
    emit,
    tenant_scope,
)
from kumiko_django.broker.lookup import find_job
from kumiko_django.history.models import JobRun
from tests.app.jobs import record
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.node import Node
from tests.helpers.waiting import wait_until
from tests.integration.worker.host_thread import Define, StartHost, ended_run
from tests.integration.worker.schedulers import Schedulers, follow

pytestmark = pytest.mark.once

TAKE = """
const taken = [];
const worker = work(async (job) => {
  taken.push(seen(job));
  return { by: "node", number: taken.length };
});
await new Promise((done) => worker.on("completed", () => taken.length >= count && done()));
return taken;
"""


def _nothing(payload: dict[str, Any], ctx: JobContext) -> None:
    raise AssertionError("Node runs this")


def test_it_sees_what_was_dispatched(node: Node, queue_state: QueueStateFactory) -> None:
    """B015, B044, B072, B081, B117: name, data, options and order of our jobs, for any client."""
    with tenant_scope("acme"):
        normal = record.dispatch({"key": "normal", "when": dt.date(2026, 1, 2)}, triggered_by="u1")
        low = record.dispatch({"key": "low"}, priority="low")
        number = record.dispatch({"key": "number"}, priority=7)
        high = record.dispatch({"key": "high"}, priority="high")
        late = record.dispatch({"key": "late"}, delay=0.3)
        many = dispatch_many(record, [{"key": f"many-{n}"} for n in range(3)])
        told = emit("order.placed", {"country": "DE"}, event_id="e1", headers={"v": 1})
    (heard,) = [one for one in told if queue_state("worker").exists(one.job_id)]
    taken = node.run(TAKE, count=9)
    in_time = [job["id"] for job in taken if job["id"] != late.job_id]
    assert in_time[:5] == [high.job_id, normal.job_id, *(one.job_id for one in many)][:5]
    assert in_time[-2:] == [number.job_id, low.job_id]
    jobs = {job["id"]: job for job in taken}
    assert set(jobs) >= {late.job_id, heard.job_id}
    first = jobs[normal.job_id]
    assert first["name"] == "testapp:job:record"
    assert first["data"]["key"] == "normal"
    assert first["data"]["when"] == "2026-01-02"
    assert (first["data"]["_tenantId"], first["data"]["_triggeredById"]) == ("acme", "u1")
    assert first["opts"]["attempts"] == 1
    assert first["opts"]["removeOnComplete"]["age"] == 86_400
    event = jobs[heard.job_id]["data"]
    assert (event["_triggerName"], event["_triggerEvent"]) == (
        "order.placed", {"id": "e1", "headers": {"v": 1}},
    )  # fmt: skip
    assert (jobs[low.job_id]["priority"], jobs[number.job_id]["priority"]) == (1000, 7)
    wait_until(lambda: not queue_state().active, description="all have ended")
    found = find_job(normal.job_id)
    assert found is not None
    assert (found.state, found.attempts_made) == ("completed", 1)
    assert queue_state().job(normal.job_id).returned["by"] == "node"
    assert JobRun.objects.count() == 0  # the history has what our workers have run


def test_it_retries_and_fails_as_we_have_asked(
    node: Node, define: Define, queue_state: QueueStateFactory
) -> None:
    """B079, B080, B085: attempts, backoff with jitter and ceiling, and the end, in Node."""
    job = define(
        _nothing,
        name="stubborn",
        retries=2,
        backoff=Backoff.exponential(0.02, jitter=0.5, max_seconds=1),
    )
    flaky = dispatch(job, {"fails": 2}, tenant_id="acme").job_id
    hopeless = dispatch(job, {"fails": 9}, tenant_id="acme").job_id
    at_once = dispatch(job, {"unrecoverable": True}, tenant_id="acme").job_id
    told = node.run(
        """
        const attempts = {};
        const ended = [];
        const worker = work(async (job) => {
          (attempts[job.id] ??= []).push(job.attemptsMade);
          if (job.data.unrecoverable) throw new UnrecoverableError("hopeless");
          if (job.attemptsMade < job.data.fails) throw new Error(`not yet ${job.attemptsMade}`);
          return "done";
        });
        await new Promise((done) => {
          const note = (job) => { ended.push(job.id); if (ended.length === 3) done(); };
          worker.on("completed", note);
          worker.on("failed", (job, error) =>
            (job.attemptsMade >= 3 || error.name === "UnrecoverableError") && note(job));
        });
        return attempts;
        """
    )
    assert told == {flaky: [0, 1, 2], hopeless: [0, 1, 2], at_once: [0]}
    assert queue_state().job(flaky).returned == "done"
    assert set(queue_state().failed) == {hopeless, at_once}
    assert queue_state().job(hopeless).failed_reason == "not yet 2"


def test_it_delays_a_job_that_ours_then_runs(node: Node, define: Define, host: StartHost) -> None:
    """B202: delayed by Node, run by ours: no attempt is used, one row in the history."""

    def later(payload: dict[str, Any], ctx: JobContext) -> int:
        return ctx.attempt

    job_id = dispatch(define(later, retries=1), tenant_id="acme").job_id
    node.run(
        """
        const worker = work(async (job, token) => {
          await job.moveToDelayed(Date.now() + 100, token);
          throw new DelayedError();
        });
        await new Promise((done) => worker.on("active", done));
        await worker.close();
        """
    )
    host("worker")
    run = ended_run(job_id)
    assert (run.status, run.attempt, run.start, run.result) == ("completed", 1, 2, 1)


def test_it_goes_on_with_what_ours_has_begun(
    node: Node, define: Define, host: StartHost, queue_state: QueueStateFactory
) -> None:
    """B200, B202, B230, B240: a deferred and a failed job, with the same data; one attempt is used.

    Our history ends where our part ends.
    """

    def begins(payload: dict[str, Any], ctx: JobContext) -> Any:
        if payload["defers"]:
            return ctx.defer(600)
        raise ValueError("once")

    job = define(begins, retries=1, backoff=Backoff.fixed(600))
    worker = host("worker")
    deferred, failed = (
        dispatch(job, {"defers": defers}, tenant_id="acme").job_id for defers in (True, False)
    )
    wait_until(lambda: len(queue_state().delayed) == 2, description="both wait for later")
    worker.stop()
    before = {job.id: job.data for job in queue_state().jobs("delayed")}
    node.run("await queue().promoteJobs()")
    taken = {job["id"]: job for job in node.run(TAKE, count=2)}
    assert {job_id: job["data"] for job_id, job in taken.items()} == before
    assert (taken[deferred]["data"]["_deferCount"], taken[deferred]["attemptsMade"]) == (1, 0)
    assert taken[failed]["attemptsMade"] == 1
    statuses = dict(JobRun.objects.values_list("queue_job_id", "status"))
    assert statuses == {deferred: "deferred", failed: "failed"}


HOLD = """
globalThis.goOn = new Promise((done) => { globalThis.finish = done; });
const held = [];
const worker = work(async (job) => {
  await globalThis.goOn;
  if (fails) throw new Error("no");
}, { concurrency: count });
await new Promise((done) => worker.on("active", (job) => held.push(job) === count && done()));
"""


LET_GO = """
globalThis.finish();
await Promise.all(workers().map((worker) => worker.close()));
"""


@pytest.mark.parametrize("fails", [False, True])
def test_places_are_free_when_it_has_ended_a_job(
    node: Node, define: Define, queue_state: QueueStateFactory, fails: bool
) -> None:
    """Design 4, P10: while Node runs it, it counts; then, or when Node has removed it, no more."""
    rare = define(_nothing, name="rare", concurrency="skip")
    capped = define(_nothing, name="capped", max_per_tenant=1)
    dispatch(rare, tenant_id="acme")
    dispatch(capped, tenant_id="acme")
    node.run(HOLD, fails=fails, count=2)
    assert [dispatch(each, tenant_id="acme").reason for each in (rare, capped)] == [
        "skipped", "skipped:max-per-tenant",
    ]  # fmt: skip
    node.run(LET_GO)
    assert not queue_state().active
    waiting = [dispatch(each, tenant_id="acme") for each in (rare, capped)]
    assert [one.status for one in waiting] == ["queued", "queued"]
    node.run("for (const id of ids) await queue().remove(id)", ids=[one.job_id for one in waiting])
    again = [dispatch(each, tenant_id="acme") for each in (rare, capped)]
    assert [one.status for one in again] == ["queued", "queued"]


def test_the_turn_passes_on_when_it_has_ended_a_job(
    node: Node, define: Define, host: StartHost, queue_state: QueueStateFactory
) -> None:
    """Design 4: Node hands no slot over; the sweeper does, and those behind run in their order."""
    order: list[str] = []

    def in_turn(payload: dict[str, Any], ctx: JobContext) -> str:
        order.append(ctx.job_id)
        return "ours"

    sequential = define(in_turn, concurrency="sequential")
    first = dispatch(sequential, tenant_id="acme")
    node.run(HOLD, fails=False, count=1)
    behind = [dispatch(sequential, tenant_id="acme") for _ in range(2)]
    assert [first.status, *(one.status for one in behind)] == ["queued", "parked", "parked"]
    node.run(LET_GO)
    assert queue_state().counts()["delayed"] == 2
    assert not queue_state().active
    host("worker")
    assert [ended_run(one.job_id).result for one in behind] == ["ours", "ours"]
    assert order == [one.job_id for one in behind]


def test_it_runs_our_schedules(node: Node, define: Define, queue_state: QueueStateFactory) -> None:
    """B095, B096, B098, P54: Node runs our occurrences and makes those that follow.

    It finds our schedulers among its own, and we still know ours.
    """
    job = define(_nothing, name="often", trigger=Every(0.2), tenant="system")
    cron = Cron("0 6 * * *", tz="Europe/Berlin")
    follow(job, define(_nothing, name="daily", trigger=cron, tenant="system"))
    told = node.run(
        """
        const taken = [];
        const worker = work(async (job) => { taken.push(seen(job)); });
        await new Promise((done) => worker.on("completed", () => taken.length >= 3 && done()));
        await worker.close();
        return { taken, known: await queue().getJobSchedulers() };
        """
    )
    ids = [tick["id"] for tick in told["taken"]]
    assert len(set(ids)) == len(ids)
    assert all(one.startswith("repeat:scheduler-testapp-job-often:") for one in ids)
    assert {tick["name"] for tick in told["taken"]} == {job.qualified_name}
    assert all(tick["opts"]["removeOnComplete"]["age"] for tick in told["taken"])
    known = {one["key"]: one for one in told["known"]}
    assert known["scheduler-testapp-job-daily"]["pattern"] == "0 6 * * *"
    assert known["scheduler-testapp-job-daily"]["tz"] == "Europe/Berlin"
    assert int(known["scheduler-testapp-job-often"]["every"]) == 200
    schedulers = Schedulers(queue_state())
    assert schedulers.mark("scheduler-testapp-job-often")["v"] == 1
    assert schedulers.tick("scheduler-testapp-job-often") in queue_state().delayed
