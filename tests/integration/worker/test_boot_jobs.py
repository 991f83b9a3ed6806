"""Boot jobs: queued once per data set when a worker of their lane starts."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
import redis
from django.core.management import CommandError, call_command
from pytest_django import Settings

from kumiko_django import SYSTEM, Backoff, JobContext, JobDefinition, dispatch
from kumiko_django.broker import boot, producer
from kumiko_django.broker.keys import child_id
from kumiko_django.history.models import JobRun
from kumiko_django.worker import boot as boot_jobs
from kumiko_django.worker.exit_codes import ExitCode
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.valkey import Valkey
from tests.helpers.waiting import wait_until
from tests.integration.worker.host_thread import Define, StartHost, ended_run, ended_runs

BOOT_ID = "boot-testapp-job-seed"


class Seed:
    """A boot job, and what it was given."""

    def __init__(self, define: Define, **options: Any) -> None:
        self.contexts: list[JobContext] = []
        self.payloads: list[Any] = []
        self.fails = False
        given = {"name": "seed", "run_on_boot": True, "tenant": "system", **options}
        self.definition: JobDefinition = define(self._seed, **given)

    def _seed(self, payload: Any, ctx: JobContext) -> None:
        self.payloads.append(payload)
        self.contexts.append(ctx)
        if self.fails:
            raise ValueError("no seed")


def start(host: StartHost) -> None:
    """A worker from its start until nothing is left."""
    assert host("worker", drain=True).wait() is True


def test_it_runs_once_under_its_own_id(
    host: StartHost, define: Define, queue_state: QueueStateFactory
) -> None:
    """B010, B081, B102, B104, B107, B226: exact id, key and field; empty data; attempts as defined;
    manual."""
    seed = Seed(define, retries=2, backoff=Backoff.fixed(5))
    start(host)
    start(host)
    state = queue_state("worker")
    assert state.client.hgetall(state.key("kumiko-boot-enqueued")) == {BOOT_ID: "1"}
    stored = state.job(BOOT_ID)
    assert stored.name == "testapp:job:seed"
    assert {key for key in stored.data if not key.startswith("_")} == set()
    assert stored.data["_tenantId"] == SYSTEM
    assert stored.opts["attempts"] == 3
    assert stored.opts["backoff"] == {"type": "fixed", "delay": 5000}
    assert seed.payloads == [{}]
    assert seed.contexts[0].triggered_by is None
    run = ended_run(BOOT_ID)
    assert (run.status, run.tenant_id, run.payload) == ("completed", SYSTEM, {})


def test_the_mark_outlives_the_job(
    host: StartHost, define: Define, queue_state: QueueStateFactory
) -> None:
    """B106: what retention takes away must not make it run again."""
    seed = Seed(define)
    start(host)
    state = queue_state("worker")
    state.client.delete(state.key(BOOT_ID), state.key("completed"))
    start(host)
    assert not state.exists(BOOT_ID)
    assert len(seed.payloads) == 1


def test_a_start_that_dies_after_the_add_leaves_one_job(
    host: StartHost, define: Define, queue_state: QueueStateFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B105: the mark comes after the add, so nothing is lost; the id keeps it at one."""
    seed = Seed(define)

    async def dies(lane: Any, job_id: str) -> None:
        raise SystemError("the process died here")

    with monkeypatch.context() as patched:
        patched.setattr(boot, "mark", dies)
        with pytest.raises(AssertionError, match="the process died here"):
            host("worker", drain=True).wait()
    state = queue_state("worker")
    assert state.wait == [BOOT_ID]
    assert not state.client.exists(state.key("kumiko-boot-enqueued"))
    start(host)
    start(host)
    assert len(seed.payloads) == 1
    assert state.client.hgetall(state.key("kumiko-boot-enqueued")) == {BOOT_ID: "1"}


def test_a_redis_that_is_away_at_that_moment_is_waited_for(
    host: StartHost,
    define: Define,
    monkeypatch: pytest.MonkeyPatch,
    own_valkey: Valkey,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """B105: between the add and the mark, say. What was done may be done again, and is one job."""
    seed = Seed(define)
    mark, frozen = boot.mark, threading.Event()

    async def away_at_first(lane: Any, job_id: str) -> None:
        if not frozen.is_set():
            own_valkey.freeze()
            frozen.set()
        await mark(lane, job_id)

    monkeypatch.setattr(boot, "mark", away_at_first)
    with caplog.at_level("WARNING", "kumiko_django.worker"):
        worker = host("worker", drain=True)
        wait_until(lambda: "The boot jobs of lane worker wait" in caplog.text, description="told")
    own_valkey.thaw()
    assert worker.wait() is True
    assert len(seed.payloads) == 1


def test_starts_at_the_same_time_queue_one(
    host: StartHost, define: Define, queue_state: QueueStateFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B227: all of them pass the check, and the shared id lets one add do something."""
    seed = Seed(define)
    together, adds = threading.Barrier(3), list[str]()
    add = producer.aadd

    async def add_together(job: Any) -> Any:
        together.wait(10)
        adds.append(job.job_id)
        return await add(job)

    monkeypatch.setattr(producer, "aadd", add_together)
    hosts = [host("worker", drain=True) for _ in range(3)]
    for each in hosts:
        assert each.wait() is True
    assert adds == [BOOT_ID] * 3
    assert len(seed.payloads) == 1
    assert JobRun.objects.filter(queue_job_id=BOOT_ID).count() == 1


def test_another_prefix_or_lane_is_another_data_set(
    host: StartHost, define: Define, settings: Settings, queue_prefix: str
) -> None:
    """B035, B228; and a worker of the other lane does not queue it."""
    seed = Seed(define)
    assert host("api", drain=True).wait() is True
    assert seed.payloads == []
    start(host)
    settings.KUMIKO = {**settings.KUMIKO, "QUEUE_PREFIX": f"{queue_prefix}-other"}
    start(host)
    assert len(seed.payloads) == 2


def test_a_renamed_one_has_run_already(
    host: StartHost, define: Define, queue_state: QueueStateFactory, raw_redis: redis.Redis
) -> None:
    """B106: if its definition says what it was called before."""
    renamed = Seed(define, name="seed-new", aliases=["seed-old"])
    other = Seed(define, name="seed-all", aliases=["seed-before"])
    marks = queue_state("worker").key("kumiko-boot-enqueued")
    raw_redis.hset(marks, "boot-testapp-job-seed-old", "1")
    start(host)
    assert (len(renamed.payloads), len(other.payloads)) == (0, 1)


def test_marks_of_jobs_that_are_gone_for_long_are_dropped(
    host: StartHost, define: Define, queue_state: QueueStateFactory, raw_redis: redis.Redis
) -> None:
    """P56: but not by a worker that merely does not know the job yet, in a rolling deploy."""
    Seed(define)
    state = queue_state("worker")
    marks, since = (
        state.key("kumiko-boot-enqueued"),
        state.key("kumiko-boot-enqueued:unknown-since"),
    )
    raw_redis.hset(marks, mapping={"boot-new": "1", "boot-stale": "1"})
    raw_redis.hset(since, mapping={"boot-stale": int(time.time()) - boot.UNKNOWN_SECONDS - 1})
    raw_redis.hset(since, mapping={BOOT_ID: 1})
    start(host)
    assert set(state.client.hgetall(marks)) == {"boot-new", BOOT_ID}
    assert set(state.client.hgetall(since)) == {"boot-new"}


def test_one_for_every_tenant_is_queued_as_its_wrapper(
    host: StartHost, define: Define, queue_state: QueueStateFactory, tenants: tuple[str, ...]
) -> None:
    """B103: under the boot id, and once; its children have the tenants."""
    seed = Seed(define, per_tenant=True, tenant="required")
    start(host)
    start(host)
    stored = queue_state("worker").job(BOOT_ID)
    assert stored.name == "_perTenant:testapp:job:seed"
    assert stored.opts["attempts"] == 3, "those of a wrapper"
    assert sorted(ctx.tenant_id for ctx in seed.contexts) == sorted(tenants)


def test_it_passes_the_door_when_it_is_queued(
    host: StartHost, define: Define, queue_state: QueueStateFactory
) -> None:
    """B105, P08: what one that waits already keeps out is on record, and has had its turn."""
    seed = Seed(define, concurrency="skip")
    waiting = dispatch(seed.definition, tenant_id=SYSTEM).job_id
    start(host)
    start(host)
    state = queue_state("worker")
    assert state.client.hgetall(state.key("kumiko-boot-enqueued")) == {BOOT_ID: "1"}
    assert not state.exists(BOOT_ID)
    assert [ctx.job_id for ctx in seed.contexts] == [waiting]
    row = ended_run(BOOT_ID)
    assert (row.status, row.reason, row.final) == ("skipped", "skipped", True)
    assert (row.attempt, row.start, row.tenant_id) == (0, 0, SYSTEM)


def test_one_that_has_to_wait_is_parked_when_it_is_queued(
    define: Define, queue_state: QueueStateFactory
) -> None:
    """P08, P12: in the order of admission, whoever fetches it."""
    seed = Seed(define, concurrency="sequential")
    dispatch(seed.definition, tenant_id=SYSTEM)
    asyncio.run(boot_jobs.enqueue_boot_jobs("worker", asyncio.Event()))
    state = queue_state("worker")
    assert state.delayed == [BOOT_ID]
    assert state.client.hexists(state.key("kumiko-boot-enqueued"), BOOT_ID)


def test_reset_makes_it_run_again(
    host: StartHost, define: Define, capsys: pytest.CaptureFixture[str]
) -> None:
    """P55: also one that has failed, whose job the queue still keeps."""
    seed = Seed(define)
    seed.fails = True
    start(host)
    seed.fails = False
    start(host)
    assert len(seed.payloads) == 1
    call_command("runjobs", "--reset", "testapp:job:seed")
    assert (
        "testapp:job:seed is forgotten; the next worker of lane worker" in capsys.readouterr().out
    )
    start(host)
    start(host)
    assert [run.status for run in ended_runs(BOOT_ID, 2)] == ["failed", "completed"]
    call_command("runjobs", "--reset", "testapp:job:seed")
    call_command("runjobs", "--reset", "testapp:job:seed")
    assert "had not been queued yet" in capsys.readouterr().out


def test_reset_of_one_for_every_tenant(
    host: StartHost, define: Define, tenants: tuple[str, ...], queue_state: QueueStateFactory
) -> None:
    """B103, B065: each tenant has its job again, which the queue knows under the same id."""
    seed = Seed(define, per_tenant=True, tenant="required")
    start(host)
    child, state = child_id(BOOT_ID, tenants[0]), queue_state("worker")
    # As if it had been retried by hand.
    state.client.zrem(state.key("completed"), child)
    state.client.zadd(state.key("delayed"), {child: 2**60})
    with pytest.raises(CommandError, match="or one of its jobs for the tenants, is waiting"):
        call_command("runjobs", "--reset", "testapp:job:seed")
    state.client.zrem(state.key("delayed"), child)
    state.client.zadd(state.key("failed"), {child: 1})
    call_command("runjobs", "--reset", "testapp:job:seed")
    start(host)
    assert sorted(ctx.tenant_id for ctx in seed.contexts) == sorted(tenants * 2)
    assert ended_runs(child, 2)[-1].status == "completed"


def test_reset_is_for_every_tenant_though_the_wrapper_is_tried_again(
    host: StartHost, define: Define, tenants: tuple[str, ...], settings: Settings
) -> None:
    """P39, P41: what is on record of the time before the reset is no reason to leave a tenant out,
    however short that is ago."""
    calls: list[int] = []

    def moody() -> tuple[str, ...]:
        calls.append(1)
        if len(calls) == fails_at:
            raise ConnectionError("no tenants now")
        return tenants

    fails_at = 0
    settings.KUMIKO = {**settings.KUMIKO, "TENANTS": moody}
    seed = Seed(define, per_tenant=True, tenant="required")
    start(host)
    call_command("runjobs", "--reset", "testapp:job:seed")
    fails_at = len(calls) + 1
    start(host)
    assert [run.status for run in ended_runs(BOOT_ID, 3)] == ["completed", "failed", "completed"]
    assert sorted(ctx.tenant_id for ctx in seed.contexts) == sorted(tenants * 2)


def test_reset_of_what_cannot_be_reset(
    define: Define, queue_state: QueueStateFactory, queue_prefix: str
) -> None:
    seed = Seed(define)
    producer.add(boot_jobs.boot_job(seed.definition))
    bad = {
        "testapp:job:seed": (ExitCode.FAULT, "is waiting or running at this moment"),
        "testapp:job:record": (ExitCode.CONFIGURATION, "Boot jobs are: testapp:job:seed"),
        "testapp:job:sead": (ExitCode.CONFIGURATION, "Did you mean 'testapp:job:seed'"),
    }
    for name, (code, complaint) in bad.items():
        with pytest.raises(CommandError, match=complaint) as told:
            call_command("runjobs", "--reset", name)
        assert told.value.returncode == code
    assert queue_state("worker").wait == [BOOT_ID]
