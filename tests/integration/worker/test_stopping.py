"""Stopping, at the moments that are easy to get wrong (B212-B217, P88)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import threading
import time
from typing import Any

import pytest
import redis.asyncio
from django.conf import settings as django_settings
from django.test import override_settings

from kumiko_django import JobContext, dispatch
from kumiko_django.broker import consumer
from kumiko_django.broker.lane_worker import LaneWorker
from kumiko_django.exceptions import BrokerUnavailable
from kumiko_django.history.models import JobRun
from kumiko_django.worker.config import HostConfig
from kumiko_django.worker.host import Host
from tests.helpers.fixtures import DatabaseAway, QueueStateFactory
from tests.helpers.waiting import await_until, wait_until
from tests.integration.broker import servers
from tests.integration.worker.host_thread import Define, StartHost, ended_run, ended_runs


def test_a_job_that_was_on_its_way_is_run_to_its_end(
    host: StartHost,
    define: Define,
    queue_state: QueueStateFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """B215: taken from the queue, not yet begun: it would have been dropped, half run, until its
    lock ran out, with its worker gone."""
    fetch = LaneWorker.fetch
    fetched = threading.Event()

    async def slow(self: LaneWorker, token: str) -> Any:
        taken = await fetch(self, token)
        if taken is not None:
            fetched.set()
            await asyncio.sleep(0.4)
        return taken

    monkeypatch.setattr(LaneWorker, "fetch", slow)

    async def takes_its_time(payload: dict[str, Any], ctx: JobContext) -> str:
        await asyncio.sleep(0.3)
        return "whole"

    job = define(takes_its_time)
    running = host("worker")
    job_id = dispatch(job, tenant_id="acme").job_id
    assert fetched.wait(10)
    assert running.stop() is True
    (run,) = ended_runs(job_id)
    assert (run.status, run.result) == ("completed", "whole")
    assert queue_state().completed == [job_id]


def test_a_cancellation_that_gets_lost_is_said_again(
    host: StartHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a command the client may swallow one; an idle worker would not stop."""
    waits = threading.Event()

    async def deaf_at_first(*_: Any, **__: Any) -> None:
        waits.set()
        for _lost in range(3):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
        await asyncio.sleep(60)

    monkeypatch.setattr(redis.asyncio.Redis, "bzpopmin", deaf_at_first)
    running = host("worker", grace=20)
    assert waits.wait(10)
    began = time.monotonic()
    assert running.stop(40) is True
    assert time.monotonic() - began < 15


def test_without_grace_it_is_given_back(
    host: StartHost, define: Define, queue_state: QueueStateFactory
) -> None:
    """user-needs 45: at the front, no attempt used; sync and async."""
    began, go = threading.Semaphore(0), threading.Event()

    def waits(payload: dict[str, Any], ctx: JobContext) -> None:
        began.release()
        go.wait(20)

    async def waits_async(payload: dict[str, Any], ctx: JobContext) -> None:
        began.release()
        await asyncio.sleep(60)

    jobs = [define(waits), define(waits_async)]
    running = host("worker", grace=0)
    ids = {dispatch(job, tenant_id="acme").job_id for job in jobs}
    for _ in jobs:
        assert began.acquire(timeout=10)
    behind = dispatch(jobs[0], tenant_id="acme", priority="low").job_id
    wait_until(lambda: JobRun.objects.count() == 3, description="all are on record")
    began_to_stop = time.monotonic()
    assert running.stop() is False
    assert time.monotonic() - began_to_stop < 5
    go.set()
    state = queue_state()
    assert set(state.wait) == ids
    assert state.prioritized == [behind]
    for job_id in [*ids, behind]:
        (run,) = ended_runs(job_id)
        assert (run.status, run.final, run.attempt) == ("interrupted", False, 1)
        stored = state.job(job_id)
        assert (stored.attempts_made, stored.attempts_started) == (0, 1)
        assert not state.locked(job_id)


def test_the_next_worker_starts_them_again(host: StartHost, define: Define) -> None:
    """P30, design 1: a redelivery is a new run with the same attempt and the next start."""
    began = threading.Event()

    async def waits(payload: dict[str, Any], ctx: JobContext) -> str:
        if not began.is_set():
            began.set()
            await asyncio.sleep(60)
        return "second time"

    job = define(waits)
    first = host("worker", grace=0.1)
    job_id = dispatch(job, tenant_id="acme").job_id
    assert began.wait(10)
    assert first.stop() is False
    host("worker")
    runs = ended_runs(job_id, 2)
    assert [(run.status, run.attempt, run.start) for run in runs] == [
        ("interrupted", 1, 1),
        ("completed", 1, 2),
    ]
    assert runs[0].worker != runs[1].worker
    assert runs[1].result == "second time"


def test_a_job_with_a_priority_that_is_given_back_wakes_another_worker(
    host: StartHost, define: Define
) -> None:
    """Idle workers look into the queue every five seconds; they need not wait for that."""
    began = threading.Event()

    async def waits(payload: dict[str, Any], ctx: JobContext) -> str:
        if not began.is_set():
            began.set()
            await asyncio.sleep(60)
        return "second time"

    job = define(waits)
    first = host("worker", grace=0)
    job_id = dispatch(job, tenant_id="acme", priority="low").job_id
    assert began.wait(10)
    host("worker")
    stopped = time.monotonic()
    first.stop()
    assert ended_runs(job_id, 2)[1].result == "second time"
    assert time.monotonic() - stopped < 4


async def _fails(self: LaneWorker, token: str) -> Any:
    raise LookupError("a fault of ours")


def test_a_fault_while_fetching_does_not_end_the_consumer(
    host: StartHost, define: Define, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bullmq-python 1.3: the lane goes on; the jobs behind must not wait for a restart."""
    fetch, faults = LaneWorker.fetch, [1, 2, 3]

    async def sometimes(self: LaneWorker, token: str) -> Any:
        if faults:
            faults.pop()
            return await _fails(self, token)
        return await fetch(self, token)

    monkeypatch.setattr(LaneWorker, "fetch", sometimes)
    job = define(lambda payload, ctx: "ran", name="quick")
    running = host("worker")
    assert ended_run(dispatch(job, tenant_id="acme").job_id).result == "ran"
    assert running.running


@pytest.mark.parametrize("stopping", [True, False])
def test_a_redis_that_fails_a_stopping_worker_is_no_news(
    stopping: bool, host: StartHost, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """B021, P93: nothing goes on by itself any more, and nobody needs to act. Before, it is
    told."""
    fetch, fetches, fails = LaneWorker.fetch, threading.Semaphore(0), asyncio.Event()

    async def fails_when_told(self: LaneWorker, token: str) -> Any:
        fetches.release()
        await fails.wait()
        monkeypatch.setattr(LaneWorker, "fetch", fetch)
        raise redis.ConnectionError("Redis has gone")

    monkeypatch.setattr(LaneWorker, "fetch", fails_when_told)
    caplog.set_level(logging.DEBUG, "kumiko_django.broker")
    running = host("worker")
    assert fetches.acquire(timeout=10)
    if stopping:
        running.ask_to_stop()
    assert running.loop is not None
    running.loop.call_soon_threadsafe(fails.set)  # after the stop
    wait_until(lambda: "Redis has gone" in caplog.text, description="it has noticed")
    assert running.stop() is True
    told = [one.levelname for one in caplog.records if "Redis has gone" in one.message]
    assert told == ["DEBUG" if stopping else "WARNING"]


def test_a_consumer_that_only_meets_faults_ends_the_process(
    host: StartHost, define: Define, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that consumes nothing and looks alive is the worst of all (user-needs 41)."""
    monkeypatch.setattr(consumer, "_LONGEST_PAUSE", 0.01)
    go, began = threading.Event(), threading.Event()

    def waits(payload: dict[str, Any], ctx: JobContext) -> None:
        began.set()
        go.wait(20)

    job = define(waits)
    running = host("worker")
    job_id = dispatch(job, tenant_id="acme").job_id
    assert began.wait(10)
    monkeypatch.setattr(LaneWorker, "fetch", _fails)
    dispatch(job, tenant_id="acme")
    with pytest.raises(
        AssertionError, match=r"kumiko-consumer-worker ended by itself.*a fault of ours"
    ):
        running.wait(20)
    go.set()
    (run,) = ended_runs(job_id)
    assert run.status == "interrupted", "what ran meanwhile is given back"


def test_stopping_wakes_the_others(host: StartHost, define: Define) -> None:
    """A marker that the leaving worker swallowed must not leave a job lying until the next poll."""
    quick = define(lambda payload, ctx: "ran", name="quick")
    for _ in range(5):
        first = host("worker")
        host("worker")
        job_id = None
        threading.Timer(0.01, first.stop).start()
        began = time.monotonic()
        job_id = dispatch(quick, tenant_id="acme").job_id
        assert ended_run(job_id).result == "ran"
        assert time.monotonic() - began < 3


def test_a_finished_run_whose_record_cannot_be_written_does_not_run_again(
    host: StartHost,
    define: Define,
    database_away: DatabaseAway,
    queue_state: QueueStateFactory,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """design 8: what is done is told to the queue, which keeps the record for the next worker."""
    began, go = threading.Event(), threading.Event()

    def works(payload: dict[str, Any], ctx: JobContext) -> str:
        began.set()
        go.wait(20)
        return "done"

    job = define(works)
    running = host("worker", grace=0.5)
    job_id = dispatch(job, tenant_id="acme").job_id
    assert began.wait(10)
    wait_until(lambda: JobRun.objects.exists(), description="its start is on record")
    with database_away():
        go.set()
        running.stop(40)
        assert queue_state().completed == [job_id]
    assert "The last records of the history could not be written" in caplog.text
    host("worker")
    run = ended_run(job_id, timeout=20)
    assert (run.status, run.result, run.start) == ("completed", "done", 1)


async def test_a_host_is_used_once() -> None:
    """P89; B216: it may be stopped before it has begun, and again when it has ended."""
    host = Host(HostConfig(lanes=("worker",), concurrency=1, grace_seconds=1))
    host.request_stop()
    host.request_stop()
    assert await host.run() is True
    host.request_stop()
    with pytest.raises(RuntimeError, match="has been started before"):
        await host.run()


@pytest.mark.parametrize("pause", [0.0, 0.005, 0.02, 0.05, 0.2])
def test_a_stop_right_after_the_start_is_clean(
    pause: float, host: StartHost, caplog: pytest.LogCaptureFixture
) -> None:
    """B214, B216: at whatever step it is; no error, none that asyncio only finds later, no thread
    left. Asked twice."""
    threads = set(threading.enumerate())
    with caplog.at_level(logging.ERROR):
        running = host("worker", "api")
        time.sleep(pause)  # another step each time; which one does not matter
        assert running.stop() is True
        assert running.stop() is True
        gc.collect()
    assert not [entry for entry in caplog.records if entry.levelno >= logging.ERROR], caplog.text
    wait_until(
        lambda: not (set(threading.enumerate()) - threads), description="its threads have ended"
    )


async def test_a_start_that_fails_leaves_nothing_open() -> None:
    """B213, B234: Redis was not reached in the given time, and nobody will call a stop."""
    with servers.silent() as port:
        settings = {**django_settings.KUMIKO, "REDIS_URL": f"redis://127.0.0.1:{port}/0"}
        with override_settings(KUMIKO=settings):
            await _fails_to_start()


async def _fails_to_start() -> None:
    threads, tasks = set(threading.enumerate()), asyncio.all_tasks()
    config = HostConfig(lanes=("worker",), concurrency=1, grace_seconds=1, connect_seconds=0.05)
    began = time.monotonic()
    with pytest.raises(BrokerUnavailable, match="does not answer in time"):
        await Host(config).run()
    assert time.monotonic() - began < 5
    await await_until(lambda: asyncio.all_tasks() == tasks, description="its tasks have ended")
    assert set(threading.enumerate()) <= threads


def test_both_lanes_are_apart(host: StartHost, define: Define) -> None:
    """B003, B031-B036: own queues, own places; a full lane does not hold up the other."""
    go, names = threading.Event(), []

    def holds(payload: dict[str, Any], ctx: JobContext) -> None:
        names.append("worker")
        go.wait(20)

    slow = define(holds, name="slow")
    fast = define(lambda payload, ctx: "fast", name="fast", lane="api")
    host("worker", "api", concurrency=2)
    held = [dispatch(slow, tenant_id="acme").job_id for _ in range(3)]
    wait_until(lambda: len(names) == 2, description="the worker lane is full")
    run = ended_run(dispatch(fast, tenant_id="acme").job_id)
    assert (run.lane, run.result) == ("api", "fast")
    assert len(names) == 2, "never more than the concurrency"
    go.set()
    assert {ended_run(job_id).lane for job_id in held} == {"worker"}
