"""Queue locks are kept while a job runs, whatever its handler does (bullmq-python 1.2, 1.10)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from pytest_django import Settings

from kumiko_django import JobContext, dispatch
from kumiko_django.broker.bullmq import QueueScripts, queue_scripts
from kumiko_django.broker.connection import current_address
from kumiko_django.broker.locks import LockKeeper
from kumiko_django.history.models import JobRun
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.waiting import wait_until
from tests.integration.worker.host_thread import Define, StartHost, ended_run, ended_runs

pytestmark = pytest.mark.once

LOCK_MS = 300


@pytest.fixture
def lost() -> list[str]:
    return []


@pytest.fixture
def scripts(queue_prefix: str) -> QueueScripts:
    return queue_scripts(f"{queue_prefix}-worker")


@pytest.fixture
def keeper(scripts: QueueScripts, lost: list[str]) -> Iterator[LockKeeper]:
    """A keeper without an event loop, for locks of 0.3 s."""
    made = LockKeeper(
        current_address(), scripts, LOCK_MS, lambda job_id, token: lost.append(job_id)
    )
    made._thread.start()
    yield made
    made.close()


class Locks:
    """Locks as the fetch script sets them."""

    def __init__(self, client: redis.Redis, scripts: QueueScripts) -> None:
        self._client = client
        self._scripts = scripts

    def take(self, job_id: str, token: str) -> None:
        self._client.set(self._key(job_id), token, px=LOCK_MS)

    def holder(self, job_id: str) -> Any:
        return self._client.get(self._key(job_id))

    def _key(self, job_id: str) -> str:
        return f"{self._scripts.keys['']}{job_id}:lock"


@pytest.fixture
def locks(raw_redis: redis.Redis, scripts: QueueScripts) -> Locks:
    return Locks(raw_redis, scripts)


def stays(locks: Locks, job_id: str, token: str, seconds: float) -> bool:
    """Whether the lock is held all the time."""
    end = time.monotonic() + seconds
    seen = []

    def over() -> bool:
        seen.append(locks.holder(job_id))
        return time.monotonic() > end

    wait_until(over, description="a while", interval=0.03)
    return all(holder == token for holder in seen)


def test_locks_are_renewed_until_they_are_released(keeper: LockKeeper, locks: Locks) -> None:
    locks.take("job", "token")
    keeper.hold("token", "job")
    assert stays(locks, "job", "token", LOCK_MS / 1000 * 3)
    keeper.release("token", "job")
    wait_until(lambda: locks.holder("job") is None, description="it runs out", timeout=3)


def test_a_job_that_comes_back_keeps_its_new_lock(
    keeper: LockKeeper, locks: Locks, lost: list[str]
) -> None:
    """The same process may get a job again that it lost: renewals answer with ids, and the old
    lock's failure would have ended the new one's renewal, and started the job a third time."""
    locks.take("job", "new")
    keeper.hold("old", "job")
    keeper.hold("new", "job")
    assert stays(locks, "job", "new", LOCK_MS / 1000 * 3)
    assert lost == ["job"]


def test_a_lost_lock_is_told_and_not_stolen_back(
    keeper: LockKeeper, locks: Locks, caplog: pytest.LogCaptureFixture
) -> None:
    locks.take("job", "theirs")
    keeper.hold("mine", "job")
    wait_until(lambda: "mine" not in keeper._held, description="the loss has been noticed")
    assert locks.holder("job") in ("theirs", None)


def test_a_fault_does_not_end_the_renewals(
    keeper: LockKeeper,
    locks: Locks,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without the thread every running job would be started again elsewhere."""
    faults = [RuntimeError("a fault of ours")]
    watch = keeper._watch_loop

    def faulty() -> None:
        if faults:
            raise faults.pop()
        watch()

    monkeypatch.setattr(keeper, "_watch_loop", faulty)
    locks.take("job", "token")
    keeper.hold("token", "job")
    wait_until(lambda: not faults, description="it has met the fault")
    locks.take("job", "token")
    assert stays(locks, "job", "token", LOCK_MS / 1000 * 3)
    assert "Renewing locks met a fault" in caplog.text


def computes(payload: dict[str, Any], ctx: JobContext) -> int:
    rounds, end = 0, time.monotonic() + payload["seconds"]
    while time.monotonic() < end:
        rounds += 1
    return rounds


async def blocks(payload: dict[str, Any], ctx: JobContext) -> str:
    time.sleep(payload["seconds"])  # noqa: ASYNC251 - that is the fault on show
    return "blocked"


@pytest.mark.parametrize("handler", [computes, blocks])
def test_a_long_job_runs_once_beside_a_hungry_worker(
    handler: Any,
    host: StartHost,
    define: Define,
    settings: Settings,
    queue_state: QueueStateFactory,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """user-needs 12, P34: CPU-bound in a thread, and blocking the event loop, three locks long."""
    settings.KUMIKO = {**settings.KUMIKO, "LOCK_SECONDS": 1.0}
    job = define(handler, name="long")
    with caplog.at_level(logging.INFO, "kumiko_django"):
        host("worker", concurrency=2)
        job_id = dispatch(job, {"seconds": 3.2}, tenant_id="acme").job_id
        wait_until(lambda: job_id in queue_state().active, description="it runs")
        host("worker", concurrency=2)
        run = ended_run(job_id)
        wait_until(lambda: job_id in queue_state().completed, description="it is completed")
    assert (run.status, run.start) == ("completed", 1)
    assert queue_state().job(job_id).attempts_started == 1
    assert JobRun.objects.count() == 1
    told = [entry for entry in caplog.messages if "event loop has been blocked" in entry]
    assert len(told) == (1 if handler is blocks else 0)


STEAL_FROM_THE_FIRST = """
if redis.call("HGET", KEYS[2], "ats") == "1" then redis.call("SET", KEYS[1], "theirs", "PX", 50) end
"""


def test_a_run_that_lost_its_lock_is_void(
    host: StartHost,
    define: Define,
    raw_redis: redis.Redis,
    queue_state: QueueStateFactory,
    settings: Settings,
) -> None:
    """P30, P31, P78: the queue hands it out again; the late end overwrites nothing."""
    settings.KUMIKO = {**settings.KUMIKO, "LOCK_SECONDS": 1.0}
    go, calls = threading.Event(), []

    def waits(payload: dict[str, Any], ctx: JobContext) -> int:
        calls.append(ctx.attempt)
        if len(calls) == 1:
            go.wait(20)
        return len(calls)

    job = define(waits)
    host("worker", concurrency=2)
    job_id = dispatch(job, tenant_id="acme").job_id
    state = queue_state()
    wait_until(lambda: state.locked(job_id) and calls, description="it runs")
    # Somebody else takes the lock, as after a pause of this process that was longer than it.
    steal: Any = raw_redis.register_script(STEAL_FROM_THE_FIRST)

    def handed_out_again() -> bool:
        steal([state.key(f"{job_id}:lock"), state.key(job_id)])
        return len(calls) == 2

    wait_until(handed_out_again, description="it has been handed out again", interval=0.4)
    first, second = ended_runs(job_id, 2)
    go.set()
    assert (first.status, first.attempt, first.start) == ("lost", 1, 1)
    assert (second.status, second.attempt, second.start) == ("completed", 1, 2)
    wait_until(lambda: job_id in state.completed, description="it is completed, by the second")
    first.refresh_from_db()
    assert first.status == "lost"
