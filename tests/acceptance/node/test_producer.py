"""Node adds jobs as the original's dispatchers do, and our worker runs them."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from kumiko_django import SYSTEM, Backoff, JobContext, Unrecoverable
from kumiko_django.history.models import JobRun
from tests.helpers.node import Node
from tests.helpers.waiting import wait_until
from tests.integration.worker.host_thread import Define, StartHost, ended_run, ended_runs

pytestmark = pytest.mark.once

ADD = """
const job = await queue().add(name, data, opts ?? {});
return job.id;
"""
METADATA = {
    "_tenantId": "acme",
    "_triggeredById": "user-7",
    "_triggerName": "order.placed",
    "_triggerEvent": {"id": "event-1", "headers": {"version": 2, "live": True}},
    "_traceContext": {"traceId": "4bf92f3577b34da6a3ce929d0e0e4736", "spanId": "00f067aa0ba902b7"},
    "_correlationId": "chain-9",
    "_writeOrigin": {"root": "anonymous", "viaJob": "shop:job:checkout"},
    "_payload": '{"number":7}',
    "_perhapsLater": [1],
}


ADD_AND_WAIT = """
await events().waitUntilReady();
const job = await queue().add(name, data);
const returned = await result(job);
const stored = await queue().getJob(job.id);
return { id: job.id, returned, value: stored.returnvalue, data: stored.data,
         state: await stored.getState(), made: stored.attemptsMade };
"""


def facts(payload: dict[str, Any], ctx: JobContext) -> dict[str, Any]:
    assert ctx.triggered_by is not None
    assert ctx.trigger_event is not None
    return {
        "payload": dict(payload),
        "tenant": ctx.tenant_id,
        "user": [ctx.triggered_by.id, ctx.triggered_by.tenant_id],
        "event": [ctx.trigger_name, ctx.trigger_event.id, dict(ctx.trigger_event.headers)],
        "correlation": ctx.correlation_id,
        "id": ctx.job_id,
        "attempt": [ctx.attempt, ctx.final_attempt],
    }


def test_the_data_of_the_original_arrives(node: Node, define: Define, host: StartHost) -> None:
    """B072-B077, B121, B122, B136, B230: payload, tenant, user, event, chain; the result goes back.

    B015, B031: the queue's name and the job's are all that a producer has to know.
    """
    job = define(facts)
    host("worker")
    payload = {"number": 7, "deep": {"list": [1.5, None, "ü"]}, "tenantId": "globex"}
    data = {**payload, **METADATA}
    told = node.run(ADD_AND_WAIT, name=job.qualified_name, data=data)
    seen = {
        "payload": payload,
        "tenant": "acme",
        "user": ["user-7", "acme"],
        "event": ["order.placed", "event-1", {"version": 2, "live": True}],
        "correlation": "chain-9",
        "id": told["id"],
        "attempt": [1, True],
    }
    assert (told["returned"], told["value"]) == (seen, seen)
    assert (told["state"], told["made"], told["data"]) == ("completed", 1, data)
    run = ended_run(told["id"])
    assert (run.status, run.tenant_id, run.payload, run.result) == (
        "completed", "acme", payload, seen,
    )  # fmt: skip
    assert (run.triggered_by_id, run.trigger, run.correlation_id, run.trace_id) == (
        "user-7", "order.placed", "chain-9", "4bf92f3577b34da6a3ce929d0e0e4736",
    )  # fmt: skip


ADD_FAILING = """
const failed = [];
events().on("failed", ({ jobId, failedReason }) => failed.push([jobId, failedReason]));
const exhausted = new Promise((done) =>
  events().on("retries-exhausted", ({ attemptsMade }) => done(attemptsMade)));
await events().waitUntilReady();
const options = [
  { attempts: 3, backoff: { type: "fixed", delay: 20 } },
  { attempts: 3, backoff: { type: "exponential", delay: 5, jitter: 0.5 } },
  { attempts: "3", backoff: 10 },
];
const jobs = [];
for (const opts of options) jobs.push(await queue().add(name, data, opts));
const reasons = [];
for (const job of jobs)
  reasons.push(await reason(job));
const hopeless = await queue().add(name, { ...data, forever: true }, { attempts: 5 });
reasons.push(await reason(hopeless));
await until(() => failed.length === 4);
const stored = await queue().getJob(jobs[0].id);
return { ids: jobs.map((job) => job.id), hopeless: hopeless.id, reasons, failed,
         exhausted: await exhausted, made: stored.attemptsMade,
         started: stored.attemptsStarted, reason: stored.failedReason,
         trace: stored.stacktrace.length };
"""


def test_the_jobs_own_retries_hold(node: Node, define: Define, host: StartHost) -> None:
    """B079-B082, B085, B086, P27: attempts and backoff that Node has stored, not the definition's.

    Node sees each failure and the reason.
    """

    def fails(payload: dict[str, Any], ctx: JobContext) -> None:
        if payload.get("forever"):
            raise Unrecoverable("no use")
        raise ValueError(f"attempt {ctx.attempt} of order {payload['number']}")

    define(fails, retries=1, backoff=Backoff.fixed(60))
    host("worker")
    told = node.run(
        ADD_FAILING,
        name="testapp:job:fails",
        data={"_tenantId": "acme", "number": 7},
    )
    reason = "ValueError: attempt 3 of order 7"
    assert told["reasons"] == [reason] * 3 + ["Unrecoverable: no use"]
    assert dict(told["failed"]) == {
        **dict.fromkeys(told["ids"], reason),
        told["hopeless"]: "Unrecoverable: no use",
    }
    assert int(told["exhausted"]) == 3
    assert (told["made"], told["started"], told["reason"], told["trace"]) == (3, 3, reason, 1)
    for job_id in told["ids"]:
        runs = ended_runs(job_id, 3)
        assert [(run.attempt, run.max_attempts, run.final) for run in runs] == [
            (1, 3, False), (2, 3, False), (3, 3, True),
        ]  # fmt: skip
    run = ended_run(told["hopeless"])
    assert (run.attempt, run.max_attempts, run.final) == (1, 5, True)


ADD_WITH_OPTIONS = """
const cases = {
  normal: { jobId: "order-7" },
  "lower than low": { priority: 2000 },
  low: { priority: 10 },
  later: { delay: 300 },
  first: { lifo: true },
  gone: { removeOnComplete: true },
  kept: { removeOnComplete: { age: 3600, count: 50 }, removeOnFail: 5 },
  text: { removeOnComplete: "soon", timestamp: Date.now() },
  more: { keepLogs: 3, stackTraceLimit: 2, sizeLimit: 5000, telemetry: { metadata: "{}" } },
};
const ids = {};
for (const [kind, opts] of Object.entries(cases))
  ids[kind] = (await queue().add(name, { _tenantId: "acme", case: kind }, opts)).id;
return ids;
"""


def test_the_jobs_own_options_hold(node: Node, define: Define, host: StartHost) -> None:
    """B031, B044: id, order, delay and retention that Node asks for; nonsense does no harm."""
    order: list[str] = []

    def notes(payload: dict[str, Any], ctx: JobContext) -> str:
        order.append(payload["case"])
        return str(payload["case"])

    define(notes)
    ids = node.run(
        ADD_WITH_OPTIONS,
        name="testapp:job:notes",
    )
    host("worker", concurrency=1)
    runs = {case: ended_run(job_id) for case, job_id in ids.items()}
    assert {case: run.status for case, run in runs.items()} == dict.fromkeys(ids, "completed")
    assert ids["normal"] == "order-7"
    in_time = [case for case in order if case != "later"]
    assert in_time == [
        "first", "normal", "gone", "kept", "text", "more", "low", "lower than low",
    ]  # fmt: skip
    left = node.run(
        """
        const left = {};
        for (const [kind, id] of Object.entries(ids))
          left[kind] = (await queue().getJob(id))?.returnvalue ?? null;
        return left;
        """,
        ids=ids,
    )
    assert left == {case: None if case == "gone" else case for case in ids}


def test_modes_hold_when_fetched(node: Node, define: Define, host: StartHost) -> None:
    """B051, B054, B055, P03, design 4: jobs of another producer pass the door when fetched."""
    go_on, began, at_once, most = threading.Event(), threading.Event(), [0], [0]

    def rare(payload: dict[str, Any], ctx: JobContext) -> str:
        began.set()
        assert go_on.wait(15)
        return "ran"

    def in_order(payload: dict[str, Any], ctx: JobContext) -> int:
        at_once[0] += 1
        most[0] = max(most[0], at_once[0])
        time.sleep(0.02)
        at_once[0] -= 1
        return int(payload["number"])

    define(rare, concurrency="skip")
    define(in_order, concurrency="sequential")
    host("worker", concurrency=4)
    first = node.run(ADD, name="testapp:job:rare", data={"_tenantId": "acme"}, opts=None)
    assert began.wait(10)
    second, third = (
        node.run(ADD, name="testapp:job:rare", data={"_tenantId": tenant}, opts=None)
        for tenant in ("acme", "globex")
    )
    skipped = ended_run(second)
    assert (skipped.status, skipped.reason, skipped.tenant_id) == ("skipped", "skipped", "acme")
    go_on.set()
    assert (ended_run(first).status, ended_run(third).status) == ("completed", "completed")
    told = node.run(
        """
        await events().waitUntilReady();
        const jobs = await queue().addBulk([1, 2, 3, 4, 5].map((number) =>
          ({ name, data: { _tenantId: "acme", number } })));
        return Promise.all(jobs.map(result));
        """,
        name="testapp:job:in-order",
    )
    assert told == [1, 2, 3, 4, 5]
    assert most == [1]


def test_a_wrapper_runs_for_every_tenant(
    node: Node, define: Define, host: StartHost, tenants: tuple[str, ...]
) -> None:
    """B061, B064, B065, B070: Node adds the wrapper, finds the children, and gets their results."""

    def counts(payload: dict[str, Any], ctx: JobContext) -> str:
        return f"{payload['month']} of {ctx.tenant_id}"

    define(counts, per_tenant=True)
    host("worker")
    told = node.run(
        """
        await events().waitUntilReady();
        const wrapper = await queue().add("_perTenant:" + name, { month: 11, _correlationId: "c" });
        await result(wrapper);
        const results = {};
        for (const tenant of tenants) {
          const child = await queue().getJob(`child-${wrapper.id}-${tenant}`);
          results[tenant] = [await result(child), child.data._tenantId,
                             child.data._correlationId];
        }
        return { id: wrapper.id, results };
        """,
        name="testapp:job:counts",
        tenants=tenants,
    )
    assert told["results"] == {tenant: [f"11 of {tenant}", tenant, "c"] for tenant in tenants}
    assert ended_run(told["id"]).tenant_id == SYSTEM


def test_a_flow_of_our_jobs(node: Node, define: Define, host: StartHost) -> None:
    """A flow's parent waits for its children, whoever runs them, and Node has the results."""

    def step(payload: dict[str, Any], ctx: JobContext) -> str:
        if payload.get("fails"):
            raise ValueError("a broken step")
        return str(payload["step"])

    define(step)
    host("worker")
    told = node.run(
        """
        await events().waitUntilReady();
        const part = (number, more = {}, opts = {}) => ({ name, queueName: queue().name,
          data: { _tenantId: "acme", step: number, ...more }, opts });
        const children = [part(1), part(2, {}, { delay: 50 })];
        const flow = await flows().add({ ...part(0), children });
        const returned = await result(flow.job);
        const values = Object.values(await flow.job.getChildrenValues()).sort();
        const broken = await flows().add({ ...part(0),
          children: [part(3, { fails: true }, { failParentOnFailure: true })] });
        const why = await reason(broken.job);
        return { result: returned, values, parent: flow.job.id, broken: broken.job.id,
                 child: broken.children[0].job.id, reason: why };
        """,
        name="testapp:job:step",
    )
    assert (told["result"], told["values"]) == ("0", ["1", "2"])
    assert ended_run(told["parent"]).status == "completed"
    assert ended_run(told["child"]).status == "failed"
    assert told["child"] in told["reason"]
    run = ended_run(told["broken"])
    assert (run.status, run.final) == ("failed", True)
    assert run.error.startswith("The queue gave the job up")


def test_deduplication_is_freed(node: Node, define: Define, host: StartHost) -> None:
    """bullmq-python 3: the key that Node has set is freed when our worker ends the job."""
    go_on = threading.Event()

    def once(payload: dict[str, Any], ctx: JobContext) -> None:
        assert go_on.wait(15)

    define(once)
    host("worker")
    add: dict[str, Any] = {
        "name": "testapp:job:once",
        "data": {"_tenantId": "acme"},
        "opts": {"deduplication": {"id": "only-one"}},
    }
    first = node.run(ADD, **add)
    assert node.run(ADD, **add) == first
    go_on.set()
    assert ended_run(first).status == "completed"
    second = node.run(ADD, **add)
    assert second != first
    assert ended_run(second).status == "completed"
    wait_until(lambda: JobRun.objects.count() == 2, description="two runs")
