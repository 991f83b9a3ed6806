"""Redis goes and comes back, while the worker idles and while jobs run (P93, user-needs 41)."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pytest_django import Settings

from kumiko_django import JobContext, dispatch
from kumiko_django.history.models import JobRun
from tests.helpers.queues import QueueState
from tests.helpers.valkey import Valkey
from tests.helpers.waiting import wait_until
from tests.integration.worker.host_thread import Define, StartHost, ended_run, ended_runs

pytestmark = pytest.mark.once

LOCK_SECONDS = 6.0


@pytest.fixture(autouse=True)
def _longer_lock(own_valkey: Valkey, settings: Settings) -> None:
    settings.KUMIKO = {**settings.KUMIKO, "LOCK_SECONDS": LOCK_SECONDS}


def quick(payload: dict[str, Any], ctx: JobContext) -> str:
    return "ran"


def a_while(seconds: float) -> None:
    """How long the outage lasts: nothing tells from outside that a worker waits."""
    end = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > end, description="the outage lasts", interval=0.1)


@contextlib.contextmanager
def away(server: Valkey, how: str) -> Iterator[None]:
    """Take Redis away for a block: ``frozen`` or ``restarted``."""
    leave, come_back = (
        (server.freeze, server.thaw) if how == "frozen" else (server.stop, server.start)
    )
    leave()
    yield
    come_back()


def told(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    return [message for message in caplog.messages if text in message]


def test_an_idle_worker_goes_on_by_itself_after_a_restart(
    own_valkey: Valkey, host: StartHost, define: Define, caplog: pytest.LogCaptureFixture
) -> None:
    """B021, B029, bullmq-python 3: also after one that lost all it had; one line per change of
    state."""
    job = define(quick)
    with caplog.at_level(logging.INFO, "kumiko_django"):
        running = host("worker")
        assert ended_run(dispatch(job, tenant_id="acme").job_id).result == "ran"
        for empty in (False, True):
            caplog.clear()
            own_valkey.stop(keep_data=not empty)
            wait_until(lambda: told(caplog, "cannot fetch jobs"), description="it has noticed")
            a_while(1.5)
            own_valkey.start(empty=empty)
            job_id = dispatch(job, tenant_id="acme").job_id
            assert ended_run(job_id, timeout=15).status == "completed"
            wait_until(lambda: told(caplog, "fetches jobs again"), description="it says so")
            assert len(told(caplog, "cannot fetch jobs")) == 1
            assert len(told(caplog, "fetches jobs again")) == 1
        assert running.running


@pytest.mark.parametrize("outage", ["frozen", "restarted"])
def test_a_job_that_ends_during_an_outage_runs_once(
    outage: str,
    own_valkey: Valkey,
    host: StartHost,
    define: Define,
    queue_prefix: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """bullmq-python 1.11: shorter than the lock; the package would have run it again."""
    ends, calls = threading.Event(), []

    def waits(payload: dict[str, Any], ctx: JobContext) -> str:
        calls.append(ctx.job_id)
        ends.wait(20)
        return "done"

    def fails(payload: dict[str, Any], ctx: JobContext) -> None:
        waits(payload, ctx)
        raise ValueError("failed meanwhile")

    jobs = [define(handler) for handler in (waits, fails)]
    with caplog.at_level(logging.INFO, "kumiko_django"):
        running = host("worker", concurrency=5)
        ids = [dispatch(job, tenant_id="acme").job_id for job in jobs]
        wait_until(lambda: len(calls) == 2, description="both run")
        with away(own_valkey, outage):
            ends.set()
            a_while(2.0)
        with own_valkey.client() as client:
            state = QueueState(client, f"{queue_prefix}-worker")
            wait_until(
                lambda: (state.completed, state.failed) == (ids[:1], ids[1:]),
                description="the queue has been told", timeout=15,
            )  # fmt: skip
            assert [state.job(job_id).attempts_started for job_id in ids] == [1, 1]
    assert [ended_run(job_id).status for job_id in ids] == ["completed", "failed"]
    assert (sorted(calls), JobRun.objects.count()) == (sorted(ids), 2)
    assert len(told(caplog, "cannot fetch jobs")) <= 1
    assert running.running


def test_stopping_does_not_wait_for_a_redis_that_is_gone(
    own_valkey: Valkey, host: StartHost, define: Define, settings: Settings
) -> None:
    """B217, P88: idle, and with a job that is done and cannot be told. What the queue has not heard
    of has not happened: it hands the job out again, and the history says so."""
    ends = threading.Event()

    def waits(payload: dict[str, Any], ctx: JobContext) -> None:
        ends.wait(20)

    settings.KUMIKO = {**settings.KUMIKO, "LOCK_SECONDS": 2.0}  # over when Redis is back
    job = define(waits)
    idle = host("api")
    busy = host("worker", grace=1)
    job_id = dispatch(job, tenant_id="acme").job_id
    wait_until(lambda: JobRun.objects.filter(status="running").exists(), description="it runs")
    own_valkey.freeze()
    ends.set()
    began = time.monotonic()
    assert idle.stop() is True
    assert time.monotonic() - began < 4
    busy.stop()
    assert time.monotonic() - began < 20
    own_valkey.thaw()
    host("worker")
    runs = ended_runs(job_id, 2, timeout=LOCK_SECONDS * 3)
    assert [run.status for run in runs] == ["lost", "completed"]


def test_a_worker_that_cannot_reach_redis_stops_when_asked(
    own_valkey: Valkey, host: StartHost
) -> None:
    """A stop during the ten seconds of connecting is not put off until they are over."""
    own_valkey.freeze()
    running = host("worker")
    wait_until(lambda: running.loop is not None, description="it connects")
    began = time.monotonic()
    assert running.stop() is True
    assert time.monotonic() - began < 3
    own_valkey.thaw()
