"""How full queues are, and how long their oldest job waits (B208, P85)."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import redis

from kumiko_django.broker.depth import STATES, Depth, depths
from kumiko_django.definitions.options import LANES
from tests.app.guarded import noted_sequence
from tests.app.jobs import api_echo, record
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.queues import QueueState

pytestmark = pytest.mark.once

EMPTY = dict.fromkeys(STATES, 0)


@pytest.fixture
def queue(queue_state: QueueStateFactory) -> QueueState:
    return queue_state("worker")


def worker() -> Depth:
    return depths(["worker"])["worker"]


def store(queue: QueueState, job_id: str, seconds_ago: float, **fields: Any) -> str:
    """A job's hash, as it is in whatever state."""
    opts = json.dumps({"delay": round(fields.pop("delay", 0) * 1000)})
    created = round((time.time() - seconds_ago) * 1000)
    job = {"name": "n", "data": "{}", "opts": opts, "timestamp": created, **fields}
    queue.client.hset(queue.key(job_id), mapping=job)
    return job_id


def about(seconds: float) -> Any:
    return pytest.approx(seconds, abs=5)


def test_an_empty_queue() -> None:
    """B208: all states have a figure."""
    assert depths(LANES) == {lane: Depth(EMPTY, 0.0) for lane in LANES}


def test_jobs_of_every_state(queue: QueueState) -> None:
    """B208, P85: prioritised ones and those that wait for children are states of their own."""
    record.dispatch({}, tenant_id="acme", immediate=True)
    record.dispatch({}, tenant_id="acme", priority="low", immediate=True)
    record.dispatch_many([{}, {}], tenant_id="acme", delay=60, immediate=True)
    api_echo.dispatch({}, tenant_id="acme", immediate=True)
    queue.client.lpush(queue.key("paused"), *"pq")
    queue.client.lpush(queue.key("active"), *"abc")
    for number, state in enumerate(("waiting-children", "completed", "failed"), start=4):
        queue.client.zadd(queue.key(state), {str(n): n for n in range(number)})
    found = depths(LANES)
    assert found["worker"].states == {
        "waiting": 1, "prioritized": 1, "delayed": 2, "paused": 2, "active": 3,
        "waiting-children": 4, "completed": 5, "failed": 6, "parked": 0,
    }  # fmt: skip
    assert found["api"].states == {**EMPTY, "waiting": 1}
    queue.client.delete(queue.key("completed"), queue.key("failed"))


def test_parked_jobs_are_not_delayed_ones(queue: QueueState) -> None:
    """Design 4: they lie among the delayed ones, and do not wait for a time."""
    for tenant in ("acme", "globex"):
        noted_sequence.dispatch_many([{}] * 3, tenant_id=tenant, immediate=True)
    record.dispatch({}, tenant_id="acme", delay=60, immediate=True)
    assert len(queue.delayed) == 5
    assert worker().states == {**EMPTY, "waiting": 2, "parked": 4, "delayed": 1}
    assert depths(["api"])["api"].states == EMPTY


@pytest.mark.parametrize("state", ["wait", "prioritized"])
def test_the_oldest_waits_since_it_could_run(state: str, queue: QueueState) -> None:
    """P85: since its dispatch and the delay of that, or since its last run."""

    def add(job_id: str, score: int) -> None:
        if state == "wait":
            queue.client.lpush(queue.key("wait"), job_id)
        else:
            queue.client.zadd(queue.key("prioritized"), {job_id: score})

    add(store(queue, "retried", 3_000, processedOn=round((time.time() - 10) * 1000)), 1)
    assert worker().oldest_seconds == about(10)
    add(store(queue, "planned", 1_000, delay=970), 2)
    assert worker().oldest_seconds == about(30)
    add(store(queue, "plain", 100), 3)
    assert worker().oldest_seconds == about(100)
    add(store(queue, "of the future", -50), 4)
    add("gone", 5)
    add(store(queue, "odd", 100, opts="[", timestamp="x"), 6)
    assert worker().oldest_seconds == about(100)


def test_urgent_jobs_do_not_hide_the_one_behind_them(queue: QueueState) -> None:
    """P85: what starves behind a stream of high priority is what one wants to see."""
    queue.client.lpush(queue.key("wait"), store(queue, "starves", 500))
    for number in range(40):
        queue.client.rpush(queue.key("wait"), store(queue, f"urgent-{number}", 1))
    assert worker().oldest_seconds == about(500)


def test_a_delayed_one_waits_from_when_it_is_due(queue: QueueState) -> None:
    due_ms = round((time.time() - 30) * 1000)
    queue.client.zadd(queue.key("delayed"), {store(queue, "due", 90): due_ms * 4096 + 7})
    assert worker().oldest_seconds == about(30)
    later_ms = round((time.time() + 30) * 1000)
    queue.client.zrem(queue.key("delayed"), "due")
    queue.client.zadd(queue.key("delayed"), {store(queue, "later", 90): later_ms * 4096})
    assert worker().oldest_seconds == 0


def test_it_is_one_round_trip_however_much_there_is(
    queue: QueueState, raw_redis: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P85: both lanes together, in one write to one connection."""
    record.dispatch_many([{}] * 2_000, tenant_id="acme", immediate=True)
    depths(LANES)
    sent: list[int] = []
    plain: Any = redis.Connection.send_packed_command

    def noted(self: Any, command: Any, check_health: bool = True) -> None:
        sent.append(len(command))
        plain(self, command, check_health)

    monkeypatch.setattr(redis.Connection, "send_packed_command", noted)
    assert depths(LANES)["worker"].states["waiting"] == 2_000
    assert len(sent) == 1
