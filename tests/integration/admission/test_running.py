"""The door with whole workers: what runs, in which order, and what the history says."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from django.db import transaction
from pytest_django import Settings

from kumiko_django import Backoff, JobContext, adispatch, dispatch, dispatch_many, signals
from kumiko_django.broker.delivery import Delivery
from kumiko_django.broker.door import Claim
from kumiko_django.broker.lane_worker import LaneWorker
from kumiko_django.broker.rules import Rules
from kumiko_django.history.models import JobRun
from tests.helpers.queues import QueueState
from tests.helpers.waiting import wait_until
from tests.integration.admission.kept import Kept
from tests.integration.worker.host_thread import (
    Define,
    StartHost,
    add_raw,
    ended_run,
    ended_runs,
)

NAME = "testapp:job:works"


class Watch:
    """A handler that notes what runs, and how many at once."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running = 0
        self.most = 0
        self.seen: list[Any] = []
        self.fences: list[int | None] = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, payload: dict[str, Any], ctx: JobContext) -> None:
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
            self.seen.append(payload.get("number"))
            self.fences.append(ctx.fencing_token)
        try:
            assert self.gate.wait(10)
            time.sleep(payload.get("seconds", 0))
            if payload.get("fails", 0) >= ctx.attempt:
                raise ValueError("on purpose")
        finally:
            with self.lock:
                self.running -= 1


@pytest.fixture
def watch() -> Watch:
    return Watch()


def send(number: int = 0, tenant: str = "acme", **payload: Any) -> Any:
    return dispatch(NAME, {"number": number, **payload}, tenant_id=tenant)


def completed(queue: QueueState, count: int) -> None:
    wait_until(
        lambda: len(queue.completed) >= count, description=f"{count} jobs are done", timeout=30
    )


def test_a_sequence_keeps_its_order_and_never_overlaps(
    define: Define, host: StartHost, watch: Watch, queue: QueueState, kept: Kept
) -> None:
    """B054, B187, B188, B191, P14, P15: one at a time, in the order of dispatch, with rising
    tokens."""
    define(watch, name="works", concurrency="sequential")
    host("worker", concurrency=10)
    made = dispatch_many(
        NAME, [{"number": n, "seconds": 0.005} for n in range(60)], tenant_id="acme"
    )
    completed(queue, 60)
    assert watch.seen == list(range(60))
    assert watch.most == 1
    fences = [fence for fence in watch.fences if fence is not None]
    assert fences == sorted(set(fences))
    assert len(fences) == 60
    runs = [ended_run(one.job_id) for one in made]
    # No attempt was used and no other row written for having waited.
    assert {(run.status, run.attempt, run.start) for run in runs} == {("completed", 1, 1)}
    assert kept.left() == []


def test_a_slot_is_held_for_as_long_as_its_job_runs(
    define: Define,
    host: StartHost,
    watch: Watch,
    queue: QueueState,
    kept: Kept,
    settings: Settings,
) -> None:
    """B185, B192, P15, P20: several locks long, and whatever the timeout, beside a worker that
    would run the next one; and handed over at once when it ends."""
    settings.KUMIKO = {**settings.KUMIKO, "LOCK_SECONDS": 1.0}
    define(watch, name="works", concurrency="sequential", timeout=60)
    watch.gate.clear()
    host("worker", concurrency=1)
    first, second = send(1), send(2)
    wait_until(lambda: watch.running, description="the first one runs")
    host("worker", concurrency=1)
    end = time.monotonic() + 2.5
    held: list[bool] = []

    def some_locks_later() -> bool:
        held.append(queue.locked(first.job_id) and kept.parked(f"one:{NAME}:acme") != [])
        return time.monotonic() > end

    wait_until(some_locks_later, description="some locks have passed")
    assert all(held)
    assert watch.seen == [1]
    ended_at = time.monotonic()
    watch.gate.set()
    runs = [ended_run(one.job_id) for one in (first, second)]
    assert time.monotonic() - ended_at < 5
    assert {(run.status, run.attempt, run.start) for run in runs} == {("completed", 1, 1)}
    assert watch.most == 1


def test_a_cap_holds_while_it_runs(
    define: Define, host: StartHost, watch: Watch, queue: QueueState, kept: Kept, redis_url: str
) -> None:
    """B204, B205, B060: jobs that nobody has asked for at dispatch never overlap more than that."""
    define(watch, name="works", max_per_tenant=3)
    jobs: list[Any] = [
        (NAME, {"number": n, "seconds": 0.01, "_tenantId": "acme"}, {}) for n in range(40)
    ]  # fmt: skip
    add_raw(redis_url, queue.queue, jobs)
    watch.gate.clear()
    host("worker", concurrency=10)
    wait_until(lambda: watch.running == 3, description="as many run as may")
    watch.gate.set()
    completed(queue, 40)
    assert sorted(watch.seen) == list(range(40))
    assert watch.most == 3
    wait_until(
        lambda: JobRun.objects.filter(status="completed", attempt=1).count() == 40,
        description="the history follows",
    )
    assert JobRun.objects.count() == 40
    assert kept.left() == []


def test_one_that_is_parked_has_lost_no_lock(
    define: Define,
    host: StartHost,
    watch: Watch,
    queue: QueueState,
    redis_url: str,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """P12: it gives its lock back; a renewal finds that before we have the answer, and said that
    another worker might run it."""
    settings.KUMIKO = {**settings.KUMIKO, "LOCK_SECONDS": 1.0}
    claim, parked = LaneWorker.claim, threading.Event()

    async def answers_some_renewals_later(
        self: LaneWorker, delivery: Delivery, token: str, rules: Rules
    ) -> Claim:
        answer = await claim(self, delivery, token, rules)
        if answer.verdict == "parked":
            await asyncio.sleep(0.8)
            parked.set()
        return answer

    monkeypatch.setattr(LaneWorker, "claim", answers_some_renewals_later)
    define(watch, name="works", concurrency="sequential")
    watch.gate.clear()
    add_raw(redis_url, queue.queue, [(NAME, {"number": n, "_tenantId": "acme"}, {}) for n in "ab"])
    host("worker", concurrency=2)
    assert parked.wait(10)
    watch.gate.set()
    completed(queue, 2)
    assert watch.seen == ["a", "b"]
    assert [line for line in caplog.messages if "lock" in line] == []


def test_a_retry_gives_its_turn_up(
    define: Define, host: StartHost, watch: Watch, queue: QueueState, kept: Kept
) -> None:
    """user-needs 18, P16: a failure releases the slot at once; the retry comes before what had
    not begun by then."""
    define(watch, name="works", concurrency="sequential", retries=1, backoff=Backoff.fixed(0.2))
    first = send(0, fails=1)
    others = [send(n, seconds=0.1) for n in range(1, 8)]
    host("worker", concurrency=10)
    completed(queue, 8)
    assert watch.most == 1
    assert [n for n in watch.seen if n] == list(range(1, 8))
    again = watch.seen.index(0, 1)
    assert 1 < again < 7
    assert [run.status for run in ended_runs(first.job_id, 2)] == ["failed", "completed"]
    assert all(others)
    assert kept.left() == []


def test_a_final_failure_frees_its_place_and_its_slot(
    define: Define, host: StartHost, watch: Watch, queue: QueueState, kept: Kept
) -> None:
    """B128, B143, P16, P21: also where those who are told of the run raise."""

    def broken(**_: Any) -> None:
        raise LookupError("a receiver's fault")

    told = (signals.job_started, signals.job_failed, signals.job_completed)
    for signal in told:
        signal.connect(broken)
    define(watch, name="works", concurrency="sequential", max_per_tenant=2)
    failed, other = send(0, fails=9), send(1)
    assert send(2).reason == "skipped:max-per-tenant"
    host("worker")
    assert ended_run(failed.job_id).status == "failed"
    assert ended_run(other.job_id).status == "completed"
    for signal in told:
        signal.disconnect(broken)
    assert kept.left() == []


def test_a_debounced_row_runs_once_with_its_last_payload(
    define: Define, host: StartHost, watch: Watch, queue: QueueState, kept: Kept
) -> None:
    """P06: after the quiet time, under the id that the last dispatch was given."""
    define(watch, name="works", concurrency="debounce", debounce=0.5)
    host("worker")
    made = [send(n) for n in range(20)]
    run = ended_run(made[-1].job_id)
    assert run.status == "completed"
    assert watch.seen == [19]
    assert JobRun.objects.count() == 1
    assert kept.left() == []


def test_jobs_that_need_no_slot_have_no_token(
    define: Define, host: StartHost, watch: Watch
) -> None:
    """B191."""
    define(watch, name="works", concurrency="skip")
    sent = send()
    host("worker")
    assert ended_run(sent.job_id).status == "completed"
    assert watch.fences == [None]


def test_what_a_worker_skips_is_on_record(
    define: Define, host: StartHost, watch: Watch, queue: QueueState, kept: Kept, redis_url: str
) -> None:
    """B056, P08, design 6: a tick that nobody sees is a row with attempt 0 and start 0."""
    define(watch, name="works", concurrency="skip")
    watch.gate.clear()
    host("worker")
    data = {"number": 1, "_tenantId": "acme"}
    running, skipped = add_raw(redis_url, queue.queue, [(NAME, data, {})] * 2)
    row = ended_run(skipped)
    assert (row.status, row.reason, row.attempt, row.start) == ("skipped", "skipped", 0, 0)
    assert (row.tenant_id, row.payload, row.final) == ("acme", {"number": 1}, True)
    assert row.wait_ms is None
    watch.gate.set()
    assert ended_run(running).status == "completed"
    assert watch.seen == [1]
    wait_until(
        lambda: not queue.client.hlen(queue.key("kumiko:unrecorded")), description="all is written"
    )
    assert kept.left() == []


@pytest.mark.django_db(transaction=True)
class TestSkips:
    """Design 6: whom a skip is told."""

    @pytest.fixture(autouse=True)
    def _job(self, define: Define, watch: Watch) -> None:
        self.definition = define(watch, name="works", concurrency="skip")
        self.told: list[dict[str, Any]] = []
        signals.job_skipped.connect(self._hear)

    def _hear(self, **told: Any) -> None:
        self.told.append(told)

    def test_after_a_commit_it_is_a_row(self) -> None:
        """Nobody sees the answer: the request has it already."""
        with transaction.atomic():
            first, second = send(1), send(2)
            assert (second.status, second.reason) == ("queued", "after-commit")
        row = JobRun.objects.get()
        assert (row.queue_job_id, row.status, row.reason) == (second.job_id, "skipped", "skipped")
        assert (row.attempt, row.start, row.payload) == (0, 0, {"number": 2})
        assert row.started_at == row.enqueued_at == row.queue_created_at
        assert [told["run"].job_id for told in self.told] == [second.job_id]
        assert self.told[0]["run"].run_id == row.id
        assert first

    def test_an_answer_is_enough_where_it_is_seen(self) -> None:
        send(1)
        refused = send(2)
        assert not JobRun.objects.exists()
        assert [(told["run"].job_id, told["reason"]) for told in self.told] == [
            (refused.job_id, "skipped")
        ]
        assert self.told[0]["sender"] is self.definition

    def test_one_that_a_worker_skips_is_told_as_well(
        self, host: StartHost, watch: Watch, queue: QueueState, redis_url: str
    ) -> None:
        watch.gate.clear()
        host("worker")
        _, skipped = add_raw(redis_url, queue.queue, [(NAME, {"_tenantId": "acme"}, {})] * 2)
        wait_until(lambda: self.told, description="it is told")
        watch.gate.set()
        assert [(told["run"].job_id, told["reason"]) for told in self.told] == [
            (skipped, "skipped")
        ]


@pytest.mark.once
async def test_skips_are_told_from_async_code_too(define: Define, watch: Watch) -> None:
    define(watch, name="works", concurrency="skip")
    told = []

    def hear(**arguments: Any) -> None:
        told.append(arguments["reason"])

    signals.job_skipped.connect(hear)
    for _ in range(2):
        await adispatch(NAME, tenant_id="acme")
    assert told == ["skipped"]


def test_the_sweeper_is_part_of_the_housekeeping(
    define: Define,
    host: StartHost,
    watch: Watch,
    queue: QueueState,
    kept: Kept,
    settings: Settings,
) -> None:
    """Design 4: a job that was removed from outside does not hold up the others for long."""
    settings.KUMIKO = {**settings.KUMIKO, "LOCK_SECONDS": 1}
    define(watch, name="works", concurrency="sequential")
    removed, following = send(1), send(2)
    queue.client.delete(queue.key(removed.job_id))
    queue.client.lrem(queue.key("wait"), 0, removed.job_id)
    host("worker")
    assert ended_run(following.job_id).status == "completed"
    assert watch.seen == [2]
    assert kept.left() == []
