"""What the door costs, in commands of the server: the same whatever else is in the queue."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import redis
from pytest_django import Settings

from kumiko_django import JobContext, dispatch, dispatch_many
from kumiko_django.broker.producer import CHUNK_JOBS
from tests.helpers.queues import QueueState
from tests.helpers.valkey import Valkey
from tests.helpers.waiting import wait_until
from tests.integration.admission.kept import Worker
from tests.integration.admission.test_running import Watch
from tests.integration.worker.host_thread import Define, StartHost

OTHERS = 5_000
PARKED = 3_000
IDLE_SECONDS = 4.0


def works(payload: dict[str, Any], ctx: JobContext) -> None:
    """Never called here."""


class Counting:
    """Counts what the server does, inside scripts too."""

    def __init__(self, client: redis.Redis) -> None:
        self._client: Any = client

    def __call__(self, action: Callable[[], object]) -> Counter[str]:
        before = self._stats()
        action()
        return self._stats() - before

    def _stats(self) -> Counter[str]:
        stats = self._client.info("commandstats")
        return Counter({name: row["calls"] for name, row in stats.items() if "info" not in name})


@pytest.mark.once
@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": "skip"},
        {"concurrency": "replace"},
        {"concurrency": "debounce", "debounce": 60},
        {"concurrency": "throttle", "throttle": 60},
        {"concurrency": "sequential"},
        {"max_per_tenant": 3},
        {"concurrency": "sequential", "max_per_tenant": 3},
    ],
    ids=lambda options: "-".join(str(value) for value in options.values()),
)
def test_a_dispatch_costs_the_same_behind_thousands_of_others(
    define: Define, own_valkey: Valkey, options: dict[str, Any]
) -> None:
    """P04: the original reads every waiting job of both queues, with its payload."""
    job, others = define(works, **options), define(works, name="other")
    with own_valkey.client() as client:
        count = Counting(client)

        def send() -> None:
            for _ in range(5):
                dispatch(job, {}, tenant_id="acme")

        send()
        alone = count(send)
        for tenant in ("acme", "globex"):
            dispatch_many(others, [{}] * (OTHERS // 2), tenant_id=tenant)
        # A job far from the ends is made void, once; the jobs after it are near.
        send()
        behind = count(send)
    assert behind == alone
    assert sum(alone.values()) < 5 * 60


@pytest.mark.once
def test_handing_over_costs_the_same_behind_thousands_of_others(
    define: Define, own_valkey: Valkey, queue_prefix: str
) -> None:
    """Issue 4: the head goes to the front of the queue, whatever waits there."""
    job, others = define(works, concurrency="sequential"), define(works, name="other")
    worker = Worker()
    with own_valkey.client() as client:
        queue = QueueState(client, f"{queue_prefix}-worker")
        count = Counting(client)
        dispatch_many(job, [{}] * 20, tenant_id="acme")

        def hand_over() -> None:
            taken = worker.run()
            worker.settle(taken)

        # Some of them in either case: the package looks closer at a queue that has run empty.
        dispatch_many(others, [{}] * 10, tenant_id="acme")
        hand_over()
        alone = count(hand_over)
        dispatch_many(others, [{}] * OTHERS, tenant_id="acme")
        behind = count(hand_over)
        assert queue.wait[0] != queue.wait[1]
    worker.close()
    assert behind == alone


@pytest.mark.once
def test_many_are_admitted_in_one_exchange_a_chunk(define: Define, own_valkey: Valkey) -> None:
    """Each is a step of its own for the server, and all of a chunk are one round trip."""
    job = define(works, max_per_tenant=10_000)
    with own_valkey.client() as client:
        count = Counting(client)
        made = count(lambda: dispatch_many(job, [{}] * (2 * CHUNK_JOBS), tenant_id="acme"))
    assert made["cmdstat_evalsha"] <= 2 * CHUNK_JOBS + CHUNK_JOBS  # one chunk before it is known


def test_parked_jobs_cost_next_to_nothing(
    define: Define,
    own_valkey: Valkey,
    host: StartHost,  # after its Redis, so that it ends before it
    queue_prefix: str,
    settings: Settings,
) -> None:
    """P17, issue 4: nobody polls for them. Less than ten commands a second with all that the
    worker does anyway: locks, leases, stalled check, sweeper."""
    settings.KUMIKO = {**settings.KUMIKO, "LOCK_SECONDS": 30}
    watch = Watch()
    watch.gate.clear()
    job = define(watch, name="works", concurrency="sequential")
    made = dispatch_many(job, [{}] * PARKED, tenant_id="acme")
    assert [one.status for one in made[:2]] == ["queued", "parked"]
    with own_valkey.client() as client:
        count = Counting(client)
        host("worker")
        wait_until(lambda: watch.seen, description="the first one runs")
        done = count(lambda: _idle(IDLE_SECONDS))
        watch.gate.set()
        wait_until(lambda: len(watch.seen) > 20, description="they are handed over")
    per_second = sum(done.values()) / IDLE_SECONDS
    assert per_second < 10, done


def _idle(seconds: float) -> None:
    end = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > end, description="a while", timeout=seconds + 5)
