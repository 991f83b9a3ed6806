"""``--drain`` and what a lane holds (``queues.lane_counts``)."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Any

import pytest
import redis
from pytest_django import Settings

from kumiko_django import Backoff, JobContext, dispatch, pending_count
from kumiko_django.broker import queues
from kumiko_django.broker.queues import LaneCounts
from kumiko_django.definitions.options import Lane
from kumiko_django.history.models import JobRun
from tests.app.jobs import api_echo, record
from tests.app.models import Effect
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.valkey import Valkey
from tests.helpers.waiting import wait_until
from tests.integration.worker.host_thread import Define, StartHost

pytestmark = pytest.mark.once


def counts_of(lane: Any = "worker") -> LaneCounts:
    async def count() -> LaneCounts:
        client = await queues.connect(5)
        try:
            return await queues.lane_counts(client, lane)
        finally:
            await client.aclose()

    return asyncio.run(count())


def test_an_empty_lane_is_drained_at_once(host: StartHost) -> None:
    began = time.monotonic()
    assert host("worker", drain=True).wait(10) is True
    assert time.monotonic() - began < 3


def test_everything_runs_follow_ups_and_retries_included(
    host: StartHost, define: Define, caplog: pytest.LogCaptureFixture
) -> None:
    """Retries in backoff are waited for; what is planned for later is left, and told."""

    def fails_twice(payload: dict[str, Any], ctx: JobContext) -> None:
        if ctx.attempt < 3:
            raise ValueError("again")
        ctx.dispatch(record, {"key": "follow-up"})

    job = define(fails_twice, retries=2, backoff=Backoff.fixed(0.8))
    for number in range(20):
        record.dispatch({"key": f"n{number}"}, tenant_id="acme", priority=number % 3)
    dispatch(job, tenant_id="acme")
    later = [record.dispatch({"key": "later"}, tenant_id="acme", delay=3600) for _ in range(2)]
    api_echo.dispatch({}, tenant_id="acme")
    with caplog.at_level(logging.INFO, "kumiko_django.worker"):
        assert host("worker", drain=True).wait(30) is True
    assert JobRun.objects.filter(status="completed").count() == 22
    assert Effect.objects.filter(key="follow-up").count() == 1
    assert not Effect.objects.filter(key__in=("later", "api-echo")).exists()
    assert counts_of() == LaneCounts(0, 0, 0, delayed=len(later), due=0, retrying=0)
    assert counts_of("api").waiting == 1
    assert "drained; left for later: 2 delayed" in caplog.text


def test_another_prefix_is_another_world(host: StartHost, settings: Settings) -> None:
    """B032: a worker sees nothing of the jobs under another prefix."""
    own = settings.KUMIKO
    settings.KUMIKO = {**own, "QUEUE_PREFIX": f"{own['QUEUE_PREFIX']}-other"}
    record.dispatch({"key": "other"}, tenant_id="acme")
    settings.KUMIKO = own
    record.dispatch({"key": "own"}, tenant_id="acme")
    host("worker", drain=True).wait(20)
    assert [effect.key for effect in Effect.objects.all()] == ["own"]


def test_a_job_that_came_due_while_no_worker_was_there_is_not_left(
    host: StartHost, queue_state: QueueStateFactory
) -> None:
    """It lies with the delayed until somebody fetches; a drain at that moment looked finished."""
    dispatched = record.dispatch({"key": "due"}, tenant_id="acme", delay=0.05)
    due_at = queue_state().due_at(dispatched.job_id)
    wait_until(lambda: time.time() > due_at + 0.1, description="it is due")
    assert counts_of() == LaneCounts(0, 0, 0, delayed=1, due=1, retrying=0)
    assert not counts_of().is_drained
    host("worker", drain=True).wait(20)
    assert Effect.objects.filter(key="due").count() == 1


def test_the_jobs_of_others_are_waited_for(host: StartHost, define: Define) -> None:
    """What runs elsewhere may fail and come back."""
    seen = []

    def fails_once(payload: dict[str, Any], ctx: JobContext) -> None:
        seen.append(ctx.attempt)
        time.sleep(0.5)
        if ctx.attempt == 1:
            raise ValueError("again")

    job = define(fails_once, retries=1, backoff=Backoff.fixed(0.3))
    elsewhere = host("worker")
    dispatch(job, tenant_id="acme")
    wait_until(lambda: seen, description="it runs elsewhere")
    host("worker", drain=True).wait(20)
    assert seen == [1, 2]
    wait_until(
        lambda: JobRun.objects.filter(status="completed").count() == 1,
        description="whoever has run it has written its record",
    )
    assert elsewhere.running


def test_a_short_outage_does_not_end_a_drain(
    own_valkey: Valkey, host: StartHost, define: Define
) -> None:
    """It would have ended with code 0, as if all had been done."""

    def sleeps(payload: dict[str, Any], ctx: JobContext) -> None:
        time.sleep(0.2)

    job = define(sleeps)
    for _ in range(6):
        dispatch(job, tenant_id="acme")
    running = host("worker", concurrency=1, drain=True)
    wait_until(lambda: JobRun.objects.exists(), description="it has begun")
    own_valkey.stop()
    down = time.monotonic()
    wait_until(lambda: time.monotonic() - down > 1.2, description="a while")
    assert running.running
    own_valkey.start()
    assert running.wait(30) is True
    assert JobRun.objects.filter(status="completed").values("queue_job_id").distinct().count() == 6


def test_counts_see_every_state(
    raw_redis: redis.Redis, queue_state: QueueStateFactory, define: Define
) -> None:
    record.dispatch({}, tenant_id="acme")
    record.dispatch({}, tenant_id="acme", priority="low")
    record.dispatch({}, tenant_id="acme", delay=60)
    retrying = record.dispatch({}, tenant_id="acme", delay=60)
    raw_redis.hset(queue_state().key(retrying.job_id), "atm", "1")
    odd = record.dispatch({}, tenant_id="acme", delay=60)
    raw_redis.hset(queue_state().key(odd.job_id), "atm", "")
    raw_redis.lpush(queue_state().key("active"), "somewhere")
    assert counts_of() == LaneCounts(1, 1, 1, delayed=3, due=0, retrying=1)


def test_work_that_goes_from_lane_to_lane_is_always_seen(
    redis_url: str, queue_state: QueueStateFactory
) -> None:
    """A job that dispatches to the other lane and ends, just between the counts of the two."""
    lanes: tuple[Lane, ...] = ("api", "worker")
    places = [queue_state(lane).key("active") for lane in lanes]
    stop = threading.Event()

    def go_round() -> None:
        client: Any = redis.Redis.from_url(redis_url)
        while not stop.is_set():
            for here, there in (places, places[::-1]):
                client.pipeline().lpush(there, "job").lrem(here, 0, "job").execute()

    async def count() -> set[int]:
        client = await queues.connect(5)
        try:
            counts = [await queues.counts_of(client, lanes) for _ in range(200)]
        finally:
            await client.aclose()
        return {sum(each.active for each in both) for both in counts}

    queue_state("api").client.lpush(places[0], "job")
    mover = threading.Thread(target=go_round)
    mover.start()
    try:
        seen = asyncio.run(count())
        pending = {pending_count() for _ in range(200)}
    finally:
        stop.set()
        mover.join()
    assert (seen, pending) == ({1}, {1})
