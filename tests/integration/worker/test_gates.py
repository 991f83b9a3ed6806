"""Boot gates: run by a starting worker itself, before it queues or consumes anything."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.dispatch import receiver

from kumiko_django import SYSTEM, Cron, JobContext, current_tenant_id, signals
from kumiko_django.broker.lease import Lease
from kumiko_django.history.models import JobRun
from kumiko_django.types.runinfo import RunInfo
from kumiko_django.worker.gates import GateFailed
from tests.app.jobs import record
from tests.app.models import Effect
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.waiting import wait_until
from tests.integration.worker.host_thread import Define, StartHost

pytestmark = pytest.mark.once

GATE_ID = "boot-testapp-job-gate"
GATE = {"name": "gate", "boot_gate": True, "tenant": "system"}


def runs() -> list[JobRun]:
    return list(JobRun.objects.filter(queue_job_id=GATE_ID).order_by("id"))


@pytest.fixture
def told() -> Iterator[list[tuple[str, RunInfo]]]:
    """What the signals of runs say."""
    heard: list[tuple[str, RunInfo]] = []

    @receiver(signals.job_started, weak=False)
    def started(sender: Any, run: RunInfo, **_: Any) -> None:
        heard.append(("started", run))

    @receiver([signals.job_completed, signals.job_failed], weak=False)
    def ended(sender: Any, run: RunInfo, **_: Any) -> None:
        heard.append(("ended", run))

    yield heard
    signals.job_started.disconnect(started)
    signals.job_completed.disconnect(ended)
    signals.job_failed.disconnect(ended)


def test_it_is_a_run_like_any_other(
    host: StartHost,
    define: Define,
    told: list[tuple[str, RunInfo]],
    queue_state: QueueStateFactory,
) -> None:
    """B011, B108, P60, P62: scope, context, signals, history; its last attempt; a row for each
    start."""
    seen: list[Any] = []

    def gate(payload: Any, ctx: JobContext) -> dict[str, int]:
        ctx.log.info("looked")
        seen.append((payload, ctx.job_id, ctx.attempt, ctx.final_attempt, current_tenant_id()))
        return {"checked": 3}

    define(gate, **GATE, retries=3)
    for _ in range(2):
        assert host("worker", drain=True).wait() is True
    assert seen == [({}, GATE_ID, 1, True, SYSTEM)] * 2
    first, second = runs()
    for run in (first, second):
        assert (run.status, run.final, run.attempt, run.max_attempts, run.start) == (
            "completed", True, 1, 1, 1,
        )  # fmt: skip
        assert (run.result, run.tenant_id, run.wait_ms) == ({"checked": 3}, SYSTEM, None)
        assert run.queue_created_at == run.started_at
        assert [line.message for line in run.logs.all()] == ["looked"]
    assert first.queue_created_at < second.queue_created_at
    assert [(kind, run.job_id) for kind, run in told] == [
        ("started", GATE_ID), ("ended", GATE_ID),
    ] * 2  # fmt: skip
    assert not queue_state("worker").exists(GATE_ID), "it is in no queue"


def test_nothing_is_consumed_before_the_gates_have_passed(
    host: StartHost, define: Define, queue_state: QueueStateFactory
) -> None:
    """P58 (not B225), B110, B212: a queued job runs after them, and so does a boot job; in their
    order."""
    order: list[str] = []
    may_pass = threading.Event()

    def gate(payload: Any, ctx: JobContext) -> None:
        order.append("gate")
        assert may_pass.wait(20)

    async def second(payload: Any, ctx: JobContext) -> None:
        order.append("second gate")

    def waits(payload: Any, ctx: JobContext) -> None:
        order.append(ctx.job_id)

    define(gate, **GATE)
    define(second, boot_gate=True, tenant="system")
    define(waits, name="seed", run_on_boot=True, tenant="system")
    define(waits, name="yearly", trigger=Cron("@yearly"), tenant="system")
    queued = record.dispatch({}, tenant_id="acme")
    worker = host("worker", drain=True)
    wait_until(lambda: order, description="the gate runs")
    state = queue_state("worker")
    assert state.wait == [queued.job_id], "neither was it taken, nor has a boot job been queued"
    assert not state.client.exists(state.key("repeat")), "nor is anything scheduled"
    may_pass.set()
    assert worker.wait() is True
    assert state.client.zrange(state.key("repeat"), 0, -1) == ["scheduler-testapp-job-yearly"]
    assert order == ["gate", "second gate", "boot-testapp-job-seed"]
    assert Effect.objects.filter(key="record").count() == 1


def test_a_failing_gate_leaves_nothing_behind(
    host: StartHost,
    define: Define,
    queue_state: QueueStateFactory,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """B109, B110, B111, B235, P59: its error ends the start; nothing queued, consumed or
    running."""
    threads = set(threading.enumerate())
    later: list[str] = []

    async def gate(payload: Any, ctx: JobContext) -> None:
        raise LookupError("the schema is too old")

    def other(payload: Any, ctx: JobContext) -> None:
        later.append(ctx.job_name)

    define(gate, **GATE, retries=5)
    define(other, boot_gate=True, tenant="system")
    define(other, name="seed", run_on_boot=True, tenant="system")
    define(other, name="yearly", trigger=Cron("@yearly"), tenant="system")
    queued = record.dispatch({}, tenant_id="acme")
    worker = host("worker")
    with caplog.at_level(logging.ERROR, "kumiko_django"), pytest.raises(AssertionError):
        worker.wait()
    assert isinstance(worker.error, GateFailed)
    assert "testapp:job:gate failed" in str(worker.error)
    assert "in gate" in caplog.text, "the log has the handler's traceback"
    assert later == []
    state = queue_state("worker")
    assert state.wait == [queued.job_id]
    assert not state.client.exists(state.key("kumiko-boot-enqueued"), state.key("repeat"))
    (run,) = runs()
    assert (run.status, run.final, run.error) == (
        "failed", True, "LookupError: the schema is too old",
    )  # fmt: skip
    wait_until(
        lambda: not (set(threading.enumerate()) - threads), description="its threads have ended"
    )


def test_a_gate_cannot_be_deferred(host: StartHost, define: Define) -> None:
    """B112, B194: it is in no queue where it could wait, and must not pass without having run."""

    def gate(payload: Any, ctx: JobContext) -> Any:
        return ctx.defer(60)

    define(gate, **GATE)
    worker = host("worker")
    with pytest.raises(AssertionError):
        worker.wait()
    assert isinstance(worker.error, GateFailed)
    assert "cannot be deferred" in str(worker.error)
    assert [run.status for run in runs()] == ["failed"]


def test_other_lanes_gates_are_not_run(host: StartHost, define: Define) -> None:
    """B035, B108: each process runs those of the lanes that it hosts."""
    ran: list[str] = []
    define(lambda payload, ctx: ran.append("api"), name="a", boot_gate=True, lane="api",
           tenant="system")  # fmt: skip
    define(lambda payload, ctx: ran.append("worker"), **GATE)
    assert host("worker", drain=True).wait() is True
    assert ran == ["worker"]
    assert host(drain=True).wait() is True
    assert sorted(ran) == ["api", "worker", "worker"]


@pytest.mark.parametrize("grace", [5, 0])
def test_a_stop_while_a_gate_runs(host: StartHost, define: Define, grace: float) -> None:
    """It has the grace to end; what comes after it does not begin, and nothing is consumed."""
    begun = threading.Event()

    async def gate(payload: Any, ctx: JobContext) -> None:
        begun.set()
        await asyncio.sleep(1 if grace else 3600)

    define(gate, **GATE)
    define(lambda payload, ctx: None, name="never", boot_gate=True, tenant="system")
    queued = record.dispatch({}, tenant_id="acme")
    worker = host("worker", grace=grace)
    assert begun.wait(10)
    assert worker.stop() is bool(grace)
    (run,) = runs()
    assert run.status == ("completed" if grace else "interrupted")
    assert not JobRun.objects.filter(job_name="testapp:job:never").exists()
    assert not JobRun.objects.filter(queue_job_id=queued.job_id).exists()


def test_one_replica_at_a_time(host: StartHost, define: Define) -> None:
    """P60: asked for, they take turns, for as long as each takes; each runs it at its own start."""
    running, most, ended = 0, 0, 0
    guard = threading.Lock()

    def gate(payload: Any, ctx: JobContext) -> None:
        nonlocal running, most, ended
        with guard:
            running += 1
            most = max(most, running)
        time.sleep(0.4)  # the work; long enough for the others to be there
        with guard:
            running -= 1
            ended += 1

    define(gate, **{**GATE, "boot_gate": "one-at-a-time"})
    workers = [host("worker", drain=True) for _ in range(3)]
    for worker in workers:
        assert worker.wait() is True
    assert (most, ended) == (1, 3)
    assert len(runs()) == 3


def test_without_asking_replicas_run_it_side_by_side(host: StartHost, define: Define) -> None:
    """And their rows do not get in one another's way (P62)."""
    together = threading.Barrier(3)
    define(lambda payload, ctx: together.wait(15) and None, **GATE)
    workers = [host("worker", drain=True) for _ in range(3)]
    for worker in workers:
        assert worker.wait() is True
    assert [run.status for run in runs()] == ["completed"] * 3


def test_a_turn_is_renewed_and_passes_on(
    host: StartHost, define: Define, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A gate that takes longer than the lease keeps it; one whose holder died is taken over."""
    settings.KUMIKO = {**settings.KUMIKO, "LOCK_SECONDS": 1}
    name = f"gate:{GATE_ID}"
    dead = Lease(name, 1.0)
    assert dead.keep()
    held: list[bool] = []

    def gate(payload: Any, ctx: JobContext) -> None:
        time.sleep(2.6)  # the lease holds two seconds
        held.append(Lease(name, 1).keep())

    define(gate, **{**GATE, "boot_gate": "one-at-a-time"})
    with caplog.at_level(logging.INFO, "kumiko_django.worker"):
        assert host("worker", drain=True).wait() is True
    assert held == [False]
    assert "another process has its turn" in caplog.text
    assert Lease(name, 1).keep(), "it was given back"


def test_a_stop_while_waiting_for_the_turn(host: StartHost, define: Define) -> None:
    ran: list[int] = []
    define(lambda payload, ctx: ran.append(1), **{**GATE, "boot_gate": "one-at-a-time"})
    other = Lease(f"gate:{GATE_ID}", 60)
    assert other.keep()
    worker = host("worker")
    wait_until(lambda: any(t.name == "kumiko-recorder" for t in threading.enumerate()),
               description="the worker has started")  # fmt: skip
    assert worker.stop() is True
    assert ran == []
    assert other.keep(), "the other's turn is not ours to give back"
