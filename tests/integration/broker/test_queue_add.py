"""What a dispatch stores is what the package's own ``Queue.add`` stores, key by key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import redis
from bullmq import Queue

from kumiko_django.broker import producer
from kumiko_django.broker.door import Decision
from kumiko_django.broker.envelope import Envelope, Metadata
from kumiko_django.broker.options import JobOptions
from kumiko_django.broker.producer import NewJob
from kumiko_django.definitions.options import Backoff, Priority
from kumiko_django.types.ambient import TraceContext
from kumiko_django.types.origin import WriteOrigin

NOW_MS = 1_790_000_000_000

Send = Callable[[Sequence[NewJob]], None]


def add_one_by_one(jobs: Sequence[NewJob]) -> None:
    for job in jobs:
        assert producer.add(job) == Decision(job.job_id)


def add_in_bulk(jobs: Sequence[NewJob]) -> None:
    assert producer.add_many(jobs) == [Decision(job.job_id) for job in jobs]


def add_one_by_one_async(jobs: Sequence[NewJob]) -> None:
    async def send() -> list[Decision]:
        return [await producer.aadd(job) for job in jobs]

    assert asyncio.run(send()) == [Decision(job.job_id) for job in jobs]


def add_in_bulk_async(jobs: Sequence[NewJob]) -> None:
    assert asyncio.run(producer.aadd_many(jobs)) == [Decision(job.job_id) for job in jobs]


SENDERS = [add_one_by_one, add_in_bulk, add_one_by_one_async, add_in_bulk_async]


def job(job_id: str, *, attempts: int = 1, delay_ms: int = 0, priority: Priority = "normal") -> Any:
    return NewJob.of(
        Envelope(
            {"text": "Grüße, 日本", "list": [1, 2.5, None, True], "object": {"a": {}}},
            Metadata(
                tenant_id="acme",
                triggered_by_id="7",
                trace=TraceContext("t" * 32, "s" * 16),
                correlation_id="c-1",
                write_origin=WriteOrigin("anonymous"),
            ),
        ),
        lane="worker",
        name="testapp:job:record",
        job_id=job_id,
        options=JobOptions(
            attempts=attempts,
            backoff=Backoff.exponential(2, jitter=0.2, max_seconds=60),
            priority=priority,
            delay_ms=delay_ms,
        ),
        timestamp_ms=NOW_MS,
    )


KINDS: dict[str, list[NewJob]] = {
    "standard": [job("a"), job("b", attempts=3)],
    "delayed": [job("a", delay_ms=60_000), job("b", delay_ms=1), job("c", delay_ms=60_000)],
    "prioritised": [job("a", priority=5), job("b", priority="low"), job("c", priority=5)],
    "lifo": [job("a"), job("b", priority="high"), job("c", priority="high")],
    "delayed and prioritised": [job("a", delay_ms=5_000, priority=9, attempts=2)],
    "delayed and lifo": [job("a", delay_ms=5_000, priority="high")],
    "mixed": [
        job("a"),
        job("b", priority=1),
        job("c", delay_ms=100),
        job("d", priority="high"),
        job("e"),
    ],
}


def everything(client: Any, queue: str) -> dict[str, Any]:
    """Read all keys of a queue; stream entries without their ids, which are times."""
    base = f"bull:{queue}:"
    readers: dict[str, Callable[[str], Any]] = {
        "hash": client.hgetall,
        "list": lambda key: client.lrange(key, 0, -1),
        "zset": lambda key: client.zrange(key, 0, -1, withscores=True),
        "string": client.get,
        "set": client.smembers,
        "stream": lambda key: [fields for _, fields in client.xrange(key)],
    }
    found = sorted(client.scan_iter(match=f"{base}*", count=1000))
    assert found, f"nothing is stored below {base}"
    return {key.removeprefix(base): readers[client.type(key)](key) for key in found}


def send_with_the_package(queue: str, redis_url: str, jobs: Sequence[NewJob]) -> None:
    async def send() -> None:
        theirs = Queue(queue, {"connection": redis_url})
        try:
            for job in jobs:
                options = job.options.to_bullmq(job.job_id, job.timestamp_ms)
                await theirs.add(job.name, job.data, options)
        finally:
            await theirs.close()

    asyncio.run(send())


@pytest.mark.once
@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("send", SENDERS)
def test_what_is_stored_equals_queue_add(
    send: Send, kind: str, queue_prefix: str, redis_url: str, raw_redis: redis.Redis
) -> None:
    """B028, B044, B080, bullmq-python 1.6: hash, lists, sets, marker, counter and events."""
    send(KINDS[kind])
    ours = everything(raw_redis, f"{queue_prefix}-worker")
    send_with_the_package(f"{queue_prefix}-theirs", redis_url, KINDS[kind])
    assert ours == everything(raw_redis, f"{queue_prefix}-theirs")
    assert {"events", "marker"} <= set(ours), "waiting workers are woken, listeners are told"


@pytest.mark.once
@pytest.mark.parametrize("send", SENDERS)
def test_into_a_paused_queue_too(
    send: Send, queue_prefix: str, redis_url: str, raw_redis: redis.Redis
) -> None:
    """bullmq-python 3 (pause): jobs wait for the resume, in the same place as the package's."""

    async def pause(name: str) -> None:
        queue = Queue(name, {"connection": redis_url})
        await queue.pause()
        await queue.close()

    for name in (f"{queue_prefix}-worker", f"{queue_prefix}-theirs"):
        asyncio.run(pause(name))
    send(KINDS["mixed"])
    send_with_the_package(f"{queue_prefix}-theirs", redis_url, KINDS["mixed"])
    ours = everything(raw_redis, f"{queue_prefix}-worker")
    assert ours == everything(raw_redis, f"{queue_prefix}-theirs")


@pytest.mark.once
@pytest.mark.parametrize("send", SENDERS)
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_repeated_add_is_harmless(
    send: Send, kind: str, queue_prefix: str, raw_redis: redis.Redis
) -> None:
    """bullmq-python 1.15: the same id again is the same job; the data that came first stays."""
    send(KINDS[kind])
    before = everything(raw_redis, f"{queue_prefix}-worker")
    changed = [
        NewJob(job.lane, job.name, job.job_id, {"_v": 1, "other": 1}, job.options, NOW_MS + 1)
        for job in KINDS[kind]
    ]
    send(changed)
    after = everything(raw_redis, f"{queue_prefix}-worker")
    # The package's script counts on and tells its listeners of a duplicate; nothing else changes.
    assert int(after.pop("id")) > int(before.pop("id"))
    events = after.pop("events")[len(before.pop("events")) :]
    assert {event["event"] for event in events} == {"duplicated"}
    assert after == before
