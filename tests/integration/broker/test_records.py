"""A job is settled and its run's record stored in one step, or neither (design 9)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from kumiko_django import dispatch
from kumiko_django.broker import records, settling
from kumiko_django.broker.bullmq import fetched_of, queue_scripts, script_of
from kumiko_django.broker.connection import current_address, new_async_client
from kumiko_django.broker.delivery import Complete, Fail, Fate, GiveBack, Retry, Settlement
from kumiko_django.broker.keys import queue_name
from kumiko_django.broker.lane_worker import LaneWorker, Refused, Taken
from kumiko_django.definitions.options import Lane
from tests.app.jobs import api_echo, record
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.queues import QueueState

pytestmark = pytest.mark.once

SETTLEMENTS: dict[str, tuple[Settlement, str]] = {
    "complete": (Complete({"n": 1}), "completed"),
    "fail": (Fail("E: broken", "Traceback"), "failed"),
    "retry at once": (Retry(0, "E: once more"), "wait"),
    "retry later": (Retry(60_000, "E: later"), "delayed"),
    "put back": (GiveBack(), "wait"),
}
"""What the queue is told, and where the job is then."""

every_settlement = pytest.mark.parametrize(
    ("settlement", "state"), list(SETTLEMENTS.values()), ids=list(SETTLEMENTS)
)
RECORD = '{"id": "…"}\n[]'
TOKEN = "token:1"


@contextlib.asynccontextmanager
async def lane_worker(lane: Lane = "worker") -> AsyncIterator[LaneWorker]:
    client = new_async_client(current_address(), patient=True)
    worker = LaneWorker(lane, client, "test")
    try:
        yield worker
    finally:
        await worker.channel.close()
        await client.aclose()


def send(count: int = 1) -> list[str]:
    return [record.dispatch({"n": n}, tenant_id="acme").job_id for n in range(count)]


async def fetched(worker: LaneWorker, token: str = TOKEN) -> Taken:
    taken = await worker.fetch(token)
    assert taken is not None
    return taken


def stored(queue: QueueState) -> dict[str, str]:
    lane: Lane = "api" if queue.queue.endswith("-api") else "worker"
    found: Any = queue.client.hgetall(records.records_key(lane))
    return dict(found)


@pytest.fixture
def queue(queue_state: QueueStateFactory) -> QueueState:
    return queue_state("worker")


def settled_one(settlement: Settlement, kept: str) -> str:
    """Send, fetch and settle one job; give its id."""
    (job_id,) = send()

    async def main() -> None:
        async with lane_worker() as worker:
            job, delivery = await fetched(worker)
            await worker.settle(job, delivery, TOKEN, settlement, kept, fetch=False)

    asyncio.run(main())
    return job_id


@every_settlement
def test_a_settlement_stores_the_record(
    settlement: Settlement, state: str, queue: QueueState
) -> None:
    """Design 9: whatever the queue is told, the record lies beside it, under the run's own name."""
    job_id = settled_one(settlement, RECORD)
    assert queue.ids(state) == [job_id]
    assert stored(queue) == {f"{job_id}/{queue.job(job_id).created_at}/1": RECORD}
    assert not queue.locked(job_id)


@every_settlement
def test_without_a_record_nothing_is_stored(
    settlement: Settlement, state: str, queue: QueueState
) -> None:
    """A run of which nothing could be recorded must be settled all the same."""
    job_id = settled_one(settlement, "")
    assert queue.ids(state) == [job_id]
    assert stored(queue) == {}


@pytest.mark.parametrize("kept", [RECORD, ""], ids=["with a record", "without one"])
def test_data_that_a_settlement_rewrites_is_written(kept: str, queue: QueueState) -> None:
    """P95: in the same step, whether or not there is a record to store."""
    job_id = settled_one(GiveBack('{"n":9}'), kept)
    assert queue.ids("wait") == [job_id]
    assert queue.client.hget(queue.key(job_id), "data") == '{"n":9}'
    assert list(stored(queue).values()) == ([kept] if kept else [])


def lose_the_lock(queue: QueueState, job_id: str) -> None:
    queue.client.set(queue.key(f"{job_id}:lock"), "another:1")


def remove_the_lock(queue: QueueState, job_id: str) -> None:
    queue.client.delete(queue.key(f"{job_id}:lock"))


def remove_the_job(queue: QueueState, job_id: str) -> None:
    queue.client.delete(queue.key(job_id), queue.key(f"{job_id}:lock"))
    queue.client.lrem(queue.key("active"), 0, job_id)


def take_it_away(queue: QueueState, job_id: str) -> None:
    """As the stalled check does: the lock is gone and the job waits again."""
    queue.client.delete(queue.key(f"{job_id}:lock"))
    queue.client.lrem(queue.key("active"), 0, job_id)
    queue.client.rpush(queue.key("wait"), job_id)


@every_settlement
@pytest.mark.parametrize(
    ("spoil", "is_gone"),
    [
        (lose_the_lock, False),
        (remove_the_lock, False),
        (take_it_away, False),
        (remove_the_job, True),
    ],
)
def test_what_the_queue_refuses_leaves_no_record(
    spoil: Any, is_gone: bool, settlement: Settlement, state: str, queue: QueueState
) -> None:
    """P78, design 9: what the queue does not agree to has not happened, so nobody may find it."""
    (job_id,) = send()

    async def main() -> Refused:
        async with lane_worker() as worker:
            job, delivery = await fetched(worker)
            spoil(queue, job_id)
            with pytest.raises(Refused) as caught:
                await worker.settle(job, delivery, TOKEN, settlement, RECORD, fetch=False)
            return caught.value

    before = time.monotonic()
    refused = asyncio.run(main())
    assert time.monotonic() - before < 5
    assert stored(queue) == {}
    assert not queue.completed
    assert not queue.failed
    assert not queue.delayed
    if not isinstance(settlement, GiveBack):  # its script knows no difference
        assert (refused.fate is Fate.GONE) is is_gone


@every_settlement
def test_a_settlement_whose_answer_was_lost_is_recognised(
    settlement: Settlement, state: str, queue: QueueState
) -> None:
    """bullmq-python 1.11: told again, the queue refuses; the record shows that it was our own word.

    What had been fetched with the lost answer goes back to the front, without its turn being used.
    """
    first, second = send(2)

    async def main() -> None:
        async with lane_worker() as worker:
            job, delivery = await fetched(worker)
            await worker.settle(job, delivery, TOKEN, settlement, RECORD, fetch=True)
            taken = await worker.settle(job, delivery, TOKEN, settlement, RECORD, fetch=True)
            assert taken is None
            with pytest.raises(Refused):
                await worker.settle(job, delivery, TOKEN, settlement, "another", fetch=False)

    asyncio.run(main())
    assert first in queue.ids(state)
    assert second in queue.wait
    assert not queue.active
    assert not queue.locked(second)
    assert list(stored(queue).values()) == [RECORD]


def test_the_next_job_comes_with_the_answer(queue: QueueState) -> None:
    """bullmq-python 5: one exchange settles, stores and fetches."""
    first, second = send(2)

    async def main() -> list[Any]:
        async with lane_worker() as worker:
            taken: Taken | None = await fetched(worker)
            seen = []
            while taken is not None:
                job, delivery = taken
                seen.append((delivery.job_id, delivery.start, delivery.data["n"]))
                taken = await worker.settle(job, delivery, TOKEN, Complete(), RECORD, fetch=True)
            return seen

    assert asyncio.run(main()) == [(first, 1, 0), (second, 1, 1)]
    assert queue.completed == [first, second]
    assert len(stored(queue)) == 2


def without_times(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name: value for name, value in pairs if name not in {"timestamp", "processedOn"}}


@every_settlement
@pytest.mark.parametrize("fetch", [False, True])
def test_the_answer_is_that_of_the_packages_script(
    fetch: bool, settlement: Settlement, state: str, queue_state: QueueStateFactory
) -> None:
    """One lane is told by the plain script, the other by the one that stores a record."""
    for job in (api_echo, record):
        for number in range(2):
            dispatch(job, {"n": number}, tenant_id="acme")

    async def answer(lane: Lane, *, with_record: bool) -> Any:
        async with lane_worker(lane) as worker:
            job, delivery = await fetched(worker)
            call = settling.call(
                queue_scripts(queue_name(lane)), job, TOKEN, settlement, fetch=fetch
            )
            if with_record:
                field = records.record_field(delivery)
                return await records.settle(worker.channel, lane, call, field, RECORD)
            return await worker.channel.run(script_of(call.script), call.keys, call.args)

    plain = asyncio.run(answer("api", with_record=False))
    storing = asyncio.run(answer("worker", with_record=True))
    assert type(plain) is type(storing)
    if isinstance(plain, list):
        fields = [without_times(fetched_of(each)[0].items()) for each in (plain, storing)]
        assert fields[0].keys() == fields[1].keys()
        assert [fetched_of(each)[2] for each in (plain, storing)] == [0, 0]
        assert bool(fields[0]) is fetch
    else:
        assert plain == storing
    assert queue_state("api").counts() == queue_state("worker").counts()
    assert stored(queue_state("api")) == {}
    assert list(stored(queue_state("worker")).values()) == [RECORD]


def test_records_of_former_runs_come_with_the_job_oldest_first(queue: QueueState) -> None:
    """Design 9: their worker may not live to write them, so the next run of the job does."""
    send()

    async def main() -> tuple[list[tuple[str, ...]], int]:
        former = []
        async with lane_worker() as worker:
            for number in range(1, 4):
                job, delivery = await fetched(worker, f"t:{number}")
                former.append(delivery.former)
                again = Retry(0, "E") if number == 1 else GiveBack()
                await worker.settle(job, delivery, f"t:{number}", again, f"{number}", fetch=False)
            _, last = await fetched(worker, "t:4")
            former.append(last.former)
            return former, last.start

    former, start = asyncio.run(main())
    assert start == 4
    assert former == [(), ("1",), ("1", "2"), ("1", "2", "3")]


def test_records_are_dropped_in_portions_and_found_in_portions(
    queue: QueueState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any number may have been left behind."""
    monkeypatch.setattr(records, "_DROPPED", 7)
    monkeypatch.setattr(records, "_SCANNED", 5)
    # So many that Redis no longer keeps them as one list, which it would scan at once.
    left = {f"job-{n}/1/1": f"record {n}" for n in range(1000)}
    queue.client.hset(records.records_key("worker"), mapping=left)
    portions = list(records.stored_records("worker"))
    assert len(portions) > 1
    assert {field: text for portion in portions for field, text in portion.items()} == left
    fields = sorted(left)
    records.drop_records("worker", fields[:500])
    assert sorted(stored(queue)) == fields[500:]

    async def main() -> None:
        async with lane_worker() as worker:
            records.drop(worker.channel, "worker", fields[500:])

    asyncio.run(main())
    assert stored(queue) == {}
    assert list(records.stored_records("worker")) == []
