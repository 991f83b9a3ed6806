"""The kit reads queues as any BullMQ client would see them, and keeps tests apart."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest
import redis
from bullmq import Queue
from pytest_django import Settings

from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.queues import QueueState, sweep
from tests.helpers.valkey import Valkey

pytestmark = pytest.mark.once

RETENTION = {"removeOnComplete": {"age": 60}, "removeOnFail": {"age": 60}}


@pytest.fixture
async def bull_queue(queue_prefix: str, redis_url: str) -> AsyncIterator[Queue]:
    queue = Queue(f"{queue_prefix}-worker", {"connection": redis_url})
    yield queue
    await queue.close()


async def test_states_and_jobs_are_read(bull_queue: Queue, queue_state: QueueStateFactory) -> None:
    await bull_queue.add("first", {"n": 1}, {"jobId": "job-a", **RETENTION})
    await bull_queue.add("second", {"n": 2}, {"jobId": "job-b", "lifo": True})
    await bull_queue.add("third", {"n": 3}, {"jobId": "job-c", "delay": 60_000})
    await bull_queue.add("fourth", {"n": 4}, {"jobId": "job-d", "priority": 5})
    state = queue_state("worker")
    assert state.wait == ["job-b", "job-a"], "the one that is taken next comes first"
    assert (state.delayed, state.prioritized) == (["job-c"], ["job-d"])
    assert state.pending() == 4
    assert state.due_at("job-c") == pytest.approx(time.time() + 60, abs=5)
    stored = state.job("job-a")
    assert (stored.name, stored.data, stored.attempts_made) == ("first", {"n": 1}, 0)
    assert stored.opts["removeOnComplete"] == {"age": 60}
    assert state.exists("job-a")
    assert not state.locked("job-a")
    assert queue_state("api").pending() == 0


def test_a_missing_job_fails_with_what_the_queue_holds(queue_state: QueueStateFactory) -> None:
    with pytest.raises(AssertionError, match="no job 'nothing' in test-"):
        queue_state().job("nothing")


def finished(client: redis.Redis, state: QueueState, job_id: str, data: str, opts: str) -> None:
    client.hset(state.key(job_id), mapping={"name": "n", "data": data, "opts": opts})
    client.zadd(state.key("completed"), {job_id: 1})


def test_the_sweep_finds_what_must_not_be_left_and_deletes_it(
    own_valkey: Valkey, queue_prefix: str
) -> None:
    """P50, bullmq-python 1.20: jobs that nobody deletes fill a Redis without anyone noticing."""
    with own_valkey.client() as client:
        state = QueueState(client, f"{queue_prefix}-worker")
        forever = '{"removeOnComplete": false}'
        kept = '{"removeOnComplete": {"age": 60}, "removeOnFail": {"age": 60}}'
        client.hset(state.key("meta"), "version", "any")
        finished(client, state, "ours-for-ever", '{"_v": 1}', forever)
        finished(client, state, "ours", '{"_v": 1}', kept)
        finished(client, state, "foreign-for-ever", "{}", forever)
        client.set("elsewhere", "1")
        assert sweep(client, queue_prefix, owned=True) == [
            f"a finished job without retention: {queue_prefix}-worker:ours-for-ever",
            f"a key outside the queue prefix {queue_prefix}: elsewhere",
        ]
        assert not client.keys("*")


def test_the_sweep_leaves_other_keys_of_a_shared_redis_alone(
    own_valkey: Valkey, queue_prefix: str
) -> None:
    with own_valkey.client() as client:
        client.set("not ours", "1")
        client.set(f"bull:{queue_prefix}-worker:wait", "1")
        assert sweep(client, queue_prefix, owned=False) == []
        assert client.keys() == ["not ours"]


seen_prefixes: set[str] = set()


@pytest.mark.parametrize("number", [1, 2])
def test_each_test_has_a_prefix_and_finds_nothing_of_others(
    number: int,
    queue_prefix: str,
    queue_state: QueueStateFactory,
    raw_redis: redis.Redis,
    settings: Settings,
) -> None:
    """B032: a prefix isolates completely."""
    assert settings.KUMIKO["QUEUE_PREFIX"] == queue_prefix
    assert queue_prefix not in seen_prefixes
    seen_prefixes.add(queue_prefix)
    assert not [key for seen in seen_prefixes for key in raw_redis.scan_iter(match=f"*{seen}*")]
    raw_redis.lpush(queue_state().key("wait"), "left for the fixture to delete")
    assert queue_state().wait
