"""Ends that are not as usual: the job is gone, its record odd, its run's record given up."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
import redis
from bullmq import FlowProducer
from pytest_django import Settings

from kumiko_django import JobContext, dispatch, dispatch_many
from kumiko_django.broker.delivery import BARRED
from kumiko_django.broker.records import records_key
from kumiko_django.broker.ticks import Ticks
from kumiko_django.history import recorder as recorder_module
from kumiko_django.history import writer
from kumiko_django.history.batch import Batch
from kumiko_django.history.models import JobRun
from kumiko_django.worker import recovery
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.waiting import wait_until
from tests.integration.worker.host_thread import (
    RETENTION,
    Define,
    StartHost,
    add_raw,
    ended_run,
    ended_runs,
    found,
)


def test_a_job_that_was_removed_while_it_ran_says_so_in_the_history(
    host: StartHost, define: Define, queue_state: QueueStateFactory, raw_redis: redis.Redis
) -> None:
    """Design 9: what the queue has seen stands in the row, not what the run had ready for it."""
    go_on = threading.Event()

    async def slow(payload: dict[str, Any], ctx: JobContext) -> None:
        await asyncio.to_thread(go_on.wait, 20)

    job = define(slow, name="slow")
    host("worker")
    job_id = dispatch(job, {}, tenant_id="acme").job_id
    wait_until(lambda: JobRun.objects.filter(queue_job_id=job_id).exists(), description="it runs")
    queue = queue_state("worker")
    raw_redis.lrem(queue.key("active"), 0, job_id)
    raw_redis.delete(queue.key(job_id), queue.key(f"{job_id}:lock"))
    go_on.set()

    run = ended_run(job_id)

    assert (run.status, run.final) == ("completed", True)
    assert run.reason == "its job was no longer in the queue when it ended"


def test_a_result_that_json_does_not_have_fails_nothing(
    host: StartHost, define: Define, queue_state: QueueStateFactory
) -> None:
    """P32, bullmq-python 1.12: the job is done, once; its result is left out, and that is said."""
    calls: list[str] = []

    def measures(payload: dict[str, Any], ctx: JobContext) -> dict[str, float]:
        calls.append(ctx.job_id)
        return {"mean": float("nan")}

    job = define(measures, retries=1)
    host("worker")
    job_id = dispatch(job, {}, tenant_id="acme").job_id
    run = ended_run(job_id, timeout=10)
    assert (run.status, run.result) == ("completed", None)
    assert run.reason.startswith("result not kept: ")
    assert queue_state("worker").completed == calls == [job_id]


def add_flow(
    redis_url: str, queue: str, parent: str, child: str, options: list[dict[str, Any]]
) -> None:
    """Add a parent with a child for each of these options, as another client does."""
    children = [
        {"name": child, "queueName": queue, "data": {"key": str(n)}, "opts": {**RETENTION, **each}}
        for n, each in enumerate(options)
    ]

    async def add() -> None:
        producer = FlowProducer({"connection": redis_url})
        flow = {"name": parent, "queueName": queue, "data": {}, "opts": RETENTION}
        await producer.add({**flow, "children": children})
        await producer.close()

    asyncio.run(add())


def test_a_parent_that_cannot_be_completed_fails_once(
    host: StartHost, define: Define, queue_prefix: str, redis_url: str
) -> None:
    """A flow of another client: its first child fails and lets the parent run, the other is not
    done. The queue refuses to complete such a parent, and would hand it out for ever."""
    calls: list[str] = []

    def fails(payload: dict[str, Any], ctx: JobContext) -> None:
        raise RuntimeError("no")

    def parent(payload: dict[str, Any], ctx: JobContext) -> None:
        calls.append(ctx.job_id)

    child = define(fails, name="child", tenant="system").qualified_name
    name = define(parent, name="parent", tenant="system").qualified_name
    options = [{"attempts": 1, "continueParentOnFailure": True}, {"delay": 60_000}]
    add_flow(redis_url, f"{queue_prefix}-worker", name, child, options)
    host("worker")

    def ended() -> JobRun | None:
        return JobRun.objects.filter(job_name=name).exclude(status="running").first()

    run = found(wait_until(ended, description="the parent has ended"))
    assert (run.status, run.final, run.error) == ("failed", True, BARRED)
    assert len(calls) == 1


@pytest.mark.parametrize(
    "mode", [{"concurrency": "replace"}, {"concurrency": "debounce", "debounce": 0.2}]
)
def test_a_child_of_a_flow_is_not_withdrawn(
    mode: dict[str, Any], host: StartHost, define: Define, queue_prefix: str, redis_url: str
) -> None:
    """B051, P06: it would be gone without a word to its parent, which would wait for ever."""
    calls: list[str] = []

    def child(payload: dict[str, Any], ctx: JobContext) -> Any:
        calls.append(payload["key"])
        may_defer = mode["concurrency"] == "replace" and calls.count(payload["key"]) == 1
        return ctx.defer(0.3) if may_defer else None

    def parent(payload: dict[str, Any], ctx: JobContext) -> None:
        calls.append("parent")

    names = {
        handler: define(handler, tenant="system", **options).qualified_name
        for handler, options in ((child, mode), (parent, {}))
    }
    add_flow(redis_url, f"{queue_prefix}-worker", names[parent], names[child], [{}, {}])
    host("worker", concurrency=1)
    wait_until(lambda: "parent" in calls, description="the parent has run")
    assert sorted(set(calls)) == ["0", "1", "parent"]


def test_a_job_that_is_withdrawn_holds_no_deduplication(
    host: StartHost,
    define: Define,
    queue_prefix: str,
    redis_url: str,
    queue_state: QueueStateFactory,
) -> None:
    """B051: another client's; older ones would add nothing under its id any more."""
    define(lambda payload, ctx: ctx.defer(3600), name="waits", concurrency="replace")
    name, data, state = "testapp:job:waits", {"_tenantId": "acme"}, queue_state()
    worker = host("worker")
    options = {"deduplication": {"id": "one"}}
    (first,) = add_raw(redis_url, f"{queue_prefix}-worker", [(name, data, options)])
    ended_run(first)
    worker.stop()
    assert state.client.get(state.key("de:one")) == first
    assert dispatch(name, tenant_id="acme").status == "replaced"
    assert not state.client.exists(state.key("de:one"))


def test_a_fault_of_the_next_job_is_not_that_of_the_one_before(
    host: StartHost,
    define: Define,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Design 9: it is fetched in the step that settles; a record that nobody can read, say, left
    the run that was settled without an end until somebody came by to write it."""
    settings.KUMIKO = {**settings.KUMIKO, "LOCK_SECONDS": 1.0}
    advance, go_on, ids = Ticks.advance, threading.Event(), list[str]()

    async def breaks_once(self: Ticks, data: dict[str, str], job_id: str) -> Any:
        if job_id == ids[1] and data["ats"] == "1":
            raise OverflowError("on purpose")
        return await advance(self, data, job_id)

    def waits(payload: dict[str, Any], ctx: JobContext) -> None:
        go_on.wait(20)

    monkeypatch.setattr(Ticks, "advance", breaks_once)
    job = define(waits, name="waits")
    ids += [sent.job_id for sent in dispatch_many(job, [{}, {}], tenant_id="acme")]
    host("worker", concurrency=1)
    wait_until(lambda: JobRun.objects.count() == 1, description="the first one runs")
    go_on.set()
    assert ended_run(ids[0]).status == "completed"
    assert [line for line in caplog.messages if "could not be settled" in line] == []
    assert [line for line in caplog.messages if "could not be looked at" in line] != []
    # The other one comes back when its lock has run out.
    seen = [(run.status, run.start) for run in ended_runs(ids[1], 2)]
    assert seen == [("lost", 1), ("completed", 2)]


def test_a_worker_goes_on_when_the_records_that_filled_it_are_given_up(
    host: StartHost,
    define: Define,
    queue_state: QueueStateFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody tells the consumers of that room; a lane must not stand still for ever (P93)."""
    broken, full = threading.Event(), threading.Event()
    ran: list[int] = []
    given_up: list[int] = []
    real = writer.write
    monkeypatch.setattr(recorder_module, "MOST_ENDS", 4)
    # Another worker writes them; what this one recovers would tell its consumers after all.
    monkeypatch.setattr(recovery, "recover", lambda now, go_on: 0)

    def write(alias: str, batch: Batch) -> Any:
        if broken.is_set() and batch.ends:
            full.wait(20)
            given_up.append(len(batch.ends))
            raise RuntimeError("a router of the host is broken")
        return real(alias, batch)

    async def quick(payload: dict[str, Any], ctx: JobContext) -> None:
        ran.append(1)

    job = define(quick, name="quick")
    broken.set()
    monkeypatch.setattr(recorder_module, "write", write)
    dispatch_many(job, [{}] * 12, tenant_id="acme")
    host("worker", concurrency=2)
    queue = queue_state("worker")
    wait_until(lambda: len(ran) >= 4 and not queue.active, description="there is no room")
    full.set()
    wait_until(lambda: sum(given_up) == len(ran), description="their records are given up")
    broken.clear()

    last = dispatch(job, {}, tenant_id="acme").job_id

    assert ended_run(last).status == "completed"


def test_a_job_may_be_called_like_the_place_of_the_records(
    host: StartHost, define: Define, redis_url: str, queue_prefix: str
) -> None:
    """Ids are chosen by producers; no key of ours may be that of a job."""

    async def quick(payload: dict[str, Any], ctx: JobContext) -> None:
        pass

    define(quick, name="quick", tenant="system")
    queue = f"{queue_prefix}-worker"
    name = records_key("worker").removeprefix(f"bull:{queue}:")
    assert ":" in name, "bullmq refuses such ids, so no job can have it"
    add_raw(redis_url, queue, [("testapp:job:quick", {}, {"jobId": "unrecorded"})])
    host("worker")

    assert ended_run("unrecorded").status == "completed"


def test_more_attempts_than_the_queue_can_count_are_settled_once(
    host: StartHost, define: Define, queue_state: QueueStateFactory, raw_redis: redis.Redis
) -> None:
    """bullmq-python 1.11: what cannot be told to the queue would run again and again."""
    ran: list[str] = []

    async def quick(payload: dict[str, Any], ctx: JobContext) -> None:
        ran.append(ctx.job_id)

    job = define(quick, name="quick", tenant="system")
    queue = queue_state("worker")
    fields: Any = {"name": job.qualified_name, "data": "{}", "opts": json.dumps(RETENTION),
              "timestamp": "1", "atm": str(10**20)}  # fmt: skip
    raw_redis.hset(queue.key("odd"), mapping=fields)
    raw_redis.lpush(queue.key("wait"), "odd")
    host("worker")

    (run,) = ended_runs("odd")

    assert run.status == "completed"
    wait_until(lambda: "odd" in queue.completed, description="the queue has been told")
    assert ran == ["odd"]
    raw_redis.delete(queue.key("odd"))  # the suite's own look cannot read such numbers
    raw_redis.zrem(queue.key("completed"), "odd")


@pytest.mark.parametrize("concurrency", ["parallel", "sequential"])
def test_records_that_cannot_be_kept_end_the_worker(
    concurrency: Any, host: StartHost, define: Define, queue_state: QueueStateFactory
) -> None:
    """Design 9: somebody has put something else there. It says what, and loses nothing."""
    go_on = threading.Event()
    job = define(lambda payload, ctx: go_on.wait(20), name="slow", concurrency=concurrency)
    running, key, queue = host("worker"), records_key("worker"), queue_state("worker")
    first, second = dispatch(job, tenant_id="acme"), dispatch(job, tenant_id="acme")
    wait_until(
        lambda: JobRun.objects.filter(queue_job_id=first.job_id).exists(), description="it runs"
    )
    queue.client.set(key, "not ours")
    go_on.set()
    with pytest.raises(AssertionError, match=f"{key} holds a string.*start the worker again"):
        running.wait()
    assert ended_run(first.job_id).status == "completed"
    assert first.job_id in queue.completed
    assert queue.client.get(key) == "not ours"
    with pytest.raises(AssertionError, match=f"{key} holds a string"):
        host("worker").wait()
    queue.client.delete(key)
    assert host("worker", drain=True).wait() is True
    assert [run.status for run in ended_runs(second.job_id)][-1] == "completed"
