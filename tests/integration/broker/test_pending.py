"""``pending_count``: from the queue's states, at the same price however much there is."""

from __future__ import annotations

import asyncio
import time

import pytest
import redis
from django.core.exceptions import SynchronousOnlyOperation

from kumiko_django import BrokerUnavailable, apending_count, dispatch_many, pending_count
from tests.app.jobs import api_echo, record
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.valkey import Valkey
from tests.helpers.waiting import wait_until

pytestmark = [pytest.mark.once, pytest.mark.django_db]


def both() -> int:
    """The count, which the two functions agree on."""
    counted = pending_count()
    assert asyncio.run(apending_count()) == counted
    return counted


def test_what_counts_and_what_does_not(
    queue_prefix: str, queue_state: QueueStateFactory, raw_redis: redis.Redis
) -> None:
    """B218 with P94: all states of both lanes but the ended ones; paused jobs count, too."""
    assert both() == 0
    record.dispatch({}, tenant_id="acme", immediate=True)
    record.dispatch({}, tenant_id="acme", priority="low", immediate=True)
    record.dispatch({}, tenant_id="acme", delay=60, immediate=True)
    api_echo.dispatch({}, tenant_id="acme", immediate=True)
    assert both() == 4
    state = queue_state("worker")
    raw_redis.lpush(state.key("paused"), "p")
    raw_redis.lpush(state.key("active"), "a")
    raw_redis.zadd(state.key("waiting-children"), {"w": 1})
    assert both() == 7
    raw_redis.zadd(state.key("completed"), {"c": 1})
    raw_redis.zadd(state.key("failed"), {"f": 1})
    assert both() == 7
    raw_redis.delete(state.key("completed"), state.key("failed"))


def test_ticks_of_schedulers(
    queue_prefix: str, queue_state: QueueStateFactory, raw_redis: redis.Redis
) -> None:
    """B218, P94: the next tick is nobody's work yet; one in backoff, or due, is."""
    state, soon = queue_state("worker"), round(time.time() * 1000) + 60_000
    for name, due in (("daily", soon), ("hourly", soon + 1), ("other:client", soon + 2)):
        raw_redis.zadd(state.key("repeat"), {name: due})
        raw_redis.zadd(state.key("delayed"), {f"repeat:{name}:{due}": due * 4096})
        raw_redis.hset(state.key(f"repeat:{name}:{due}"), mapping={"name": "n", "data": "{}"})
    assert both() == 0
    raw_redis.hset(state.key(f"repeat:daily:{soon}"), mapping={"ats": "1", "atm": "1"})
    assert both() == 1
    raw_redis.zadd(state.key("delayed"), {f"repeat:daily:{soon - 90_000}": (soon - 90_000) * 4096})
    assert both() == 2, "a tick that is not the scheduler's next one is under way"
    raw_redis.zadd(state.key("repeat"), {"late": soon - 100_000})
    late = f"repeat:late:{soon - 100_000}"
    raw_redis.zadd(state.key("delayed"), {late: (soon - 100_000) * 4096})
    assert both() == 3, "a tick that is due has only to be taken"


def test_it_reads_no_payloads(queue_prefix: str) -> None:
    """P94: 5,000 delayed jobs of 2 kB are counted in milliseconds."""
    payloads = [{"text": "x" * 2_000}] * 5_000
    dispatch_many(record, payloads, tenant_id="acme", delay=3600, immediate=True)

    def took() -> float:
        began = time.perf_counter()
        assert pending_count() == 5_000
        return time.perf_counter() - began

    wait_until(lambda: took() < 0.02, description="counting took less than 20 ms")


async def test_in_async_code(queue_prefix: str) -> None:
    assert await apending_count() == 0
    with pytest.raises(SynchronousOnlyOperation, match="await apending_count"):
        pending_count()


def test_a_redis_that_is_away(own_valkey: Valkey) -> None:
    own_valkey.stop()
    with pytest.raises(BrokerUnavailable):
        pending_count()
    with pytest.raises(BrokerUnavailable):
        asyncio.run(apending_count())
