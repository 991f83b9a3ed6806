"""Slots, parking and handing over, with workers that the test leads by hand."""

from __future__ import annotations

import datetime as dt
import json
import time
from typing import Any

import pytest
from pytest_django import Settings

from kumiko_django import JobContext, dispatch
from kumiko_django.admission import sweeper
from kumiko_django.broker.delivery import Fail, GiveBack, Postpone, Retry
from kumiko_django.broker.lane_worker import Refused
from tests.helpers.queues import QueueState
from tests.helpers.waiting import wait_until
from tests.integration.admission.kept import Kept, Worker
from tests.integration.worker.host_thread import Define, add_raw

pytestmark = pytest.mark.once

NAME = "testapp:job:works"
KEY = f"one:{NAME}:acme"
CAP = f"cap:{NAME}:acme"
DAY = 24 * 3600


def works(payload: dict[str, Any], ctx: JobContext) -> None:
    """Never called here."""


def send(number: int = 0, tenant: str = "acme", **options: Any) -> Any:
    return dispatch(NAME, {"number": number}, tenant_id=tenant, **options)


def sweep() -> int:
    """A pass of the sweeper, whenever the last one was."""
    return sweeper.sweep(dt.datetime.now(dt.UTC), lambda: True)


class TestSequential:
    """B054, B185-B192, P12-P21."""

    def test_the_first_is_granted_the_others_are_parked(
        self, define: Define, queue: QueueState, kept: Kept
    ) -> None:
        """B187, P12, P14: same id, no copies, no polling, in their order."""
        define(works, concurrency="sequential")
        made = [send(n) for n in range(3)]
        ids = [one.job_id for one in made]
        assert [one.status for one in made] == ["queued", "parked", "parked"]
        assert made[1].reason == "sequential"
        assert all(made)
        assert queue.wait == ids[:1]
        assert kept.parked(KEY) == ids[1:] == queue.delayed
        assert DAY - 60 < queue.due_at(ids[1]) - time.time() < DAY + 60
        assert not queue.job(ids[1]).opts.get("delay")

    def test_the_slot_goes_to_the_next_with_the_settlement(
        self, define: Define, queue: QueueState, worker: Worker, kept: Kept
    ) -> None:
        """B027, B125, B187, B189, P14: in the order of dispatch, at the front of the queue, no
        attempt used."""
        define(works, concurrency="sequential")
        other = define(works, name="other")
        ids = [send(n).job_id for n in range(4)]
        dispatch(other, {}, tenant_id="acme")
        seen = []
        taken = worker.run()
        for _ in range(4):
            seen.append(taken.id)
            assert taken.delivery.attempt == taken.delivery.start == 1
            worker.settle(taken)
            if len(seen) < 4:
                assert queue.wait[0] == ids[len(seen)]
                taken = worker.run()
        assert seen == ids
        assert kept.left() == []

    def test_tenants_do_not_wait_for_one_another(self, define: Define, worker: Worker) -> None:
        """P19; B190 is what `global` does."""
        define(works, concurrency="sequential")
        assert [send(1, t).status for t in ("acme", "globex")] == ["queued", "queued"]

    def test_all_wait_for_one_another_where_asked(self, define: Define) -> None:
        """B190"""
        define(works, concurrency="sequential", concurrency_scope="global")
        assert [send(1, t).status for t in ("acme", "globex")] == ["queued", "parked"]

    def test_prefixes_and_lanes(self, define: Define, kept: Kept, settings: Settings) -> None:
        """B186, P18: another prefix is another world; the lane is no part of the key."""
        define(works, concurrency="sequential")
        send()
        assert list(kept.slots(KEY)) == [f"worker:{kept_id}" for kept_id in _ids(kept)]
        settings.KUMIKO = {
            **settings.KUMIKO, "QUEUE_PREFIX": settings.KUMIKO["QUEUE_PREFIX"] + "-other"
        }  # fmt: skip
        assert send().status == "queued"

    def test_one_that_cannot_be_admitted_when_it_is_fetched_is_parked(
        self, define: Define, queue: QueueState, worker: Worker, kept: Kept, redis_url: str
    ) -> None:
        """B188, P12, P13: another producer's job is moved, not copied; no attempt is used."""
        define(works, concurrency="sequential")
        send()
        data = {"_tenantId": "acme"}
        (foreign,) = add_raw(redis_url, queue.queue, [(NAME, data, {"attempts": 2})])
        first = worker.run()
        taken = worker.take()
        assert taken.id == foreign
        assert worker.claim(taken).verdict == "parked"
        assert kept.parked(KEY) == [foreign] == queue.delayed
        job = queue.job(foreign)
        assert (job.attempts_made, job.stalled, queue.failed) == (0, 0, [])
        worker.settle(first)
        assert worker.run().id == foreign

    def test_a_worker_that_dies_when_it_has_put_a_job_off_leaves_one_job(
        self, define: Define, queue: QueueState, worker: Worker, settings: Settings, redis_url: str
    ) -> None:
        """P13: a job that has to wait is moved in one step, so nothing can be half done."""
        settings.KUMIKO = {**settings.KUMIKO, "LOCK_SECONDS": 1}
        define(works, concurrency="sequential")
        send()
        add_raw(redis_url, queue.queue, [(NAME, {"_tenantId": "acme", "number": "foreign"}, {})])
        first = worker.run()
        worker.claim(worker.take())  # and that was the last thing it did
        worker.settle(first)
        ran: list[Any] = []

        def rest_has_run() -> bool:
            worker.requeue_stalled()
            if (taken := worker.fetch()) and worker.claim(taken).verdict == "run":
                ran.append(taken.delivery.data["number"])
                worker.settle(taken)
            return not queue.pending()

        wait_until(rest_has_run, description="nothing is left", interval=0.05)
        assert ran == ["foreign"]

    def test_backoff_gives_the_turn_up_and_comes_back_first(
        self, define: Define, queue: QueueState, worker: Worker, kept: Kept
    ) -> None:
        """user-needs 18: a retry in an hour does not hold up the others."""
        define(works, concurrency="sequential", retries=3)
        a, b, c, d = (send(n).job_id for n in range(4))
        first = worker.run()
        worker.settle(first, Retry(3_600_000, "later"))
        second = worker.run()
        assert second.id == b
        queue.client.zadd(queue.key("delayed"), {a: 1})  # its time has come
        again = worker.take()
        assert again.id == a
        assert worker.claim(again).verdict == "parked"
        assert kept.parked(KEY) == [a, c, d]
        worker.settle(second)
        assert [worker.run().id] == [a]

    def test_a_deferral_gives_the_turn_up_and_comes_back_first(
        self, define: Define, queue: QueueState, worker: Worker, kept: Kept
    ) -> None:
        """B125, P101: the slot is free before the job waits, and none of it is an attempt."""
        define(works, concurrency="sequential")
        a, b, c = (send(n).job_id for n in range(3))
        first = worker.run()
        data = json.dumps(queue.job(a).data | {"_deferCount": 1})
        worker.settle(first, Postpone(3_600_000, data))
        assert list(kept.slots(KEY)) == [f"worker:{b}"]
        second = worker.run()
        assert second.id == b
        queue.client.zadd(queue.key("delayed"), {a: 1})  # its time has come
        again = worker.take()
        assert (again.id, again.delivery.attempt) == (a, 1)
        assert worker.claim(again).verdict == "parked"
        assert kept.parked(KEY) == [a, c]
        worker.settle(second)
        assert worker.run().id == a

    def test_a_delayed_one_has_its_turn_when_it_is_due(
        self, define: Define, queue: QueueState, worker: Worker, kept: Kept
    ) -> None:
        define(works, concurrency="sequential")
        late = send(1, delay=3600)
        assert late.status == "queued"
        a, b = send(2).job_id, send(3).job_id
        queue.client.zadd(queue.key("delayed"), {late.job_id: 1})
        # The due one joins behind what waits already.
        first = worker.run()
        assert first.id == a
        assert worker.claim(worker.take()).verdict == "parked"
        assert kept.parked(KEY) == [b, late.job_id]

    def test_given_back_it_stays_the_next_one(self, define: Define, worker: Worker) -> None:
        define(works, concurrency="sequential")
        a, _ = send(1).job_id, send(2)
        worker.settle(worker.run(), GiveBack())
        assert worker.run().id == a

    def test_priorities_are_parked_and_handed_over_too(
        self, define: Define, queue: QueueState, worker: Worker
    ) -> None:
        """P03"""
        define(works, concurrency="sequential")
        ids = [send(n, priority=p).job_id for n, p in enumerate(["low", "high", 7, "normal"])]
        assert queue.prioritized == ids[:1]
        seen = []
        for _ in ids:
            taken = worker.run()
            seen.append(taken.id)
            worker.settle(taken)
        assert seen == ids

    def test_every_claim_has_a_higher_fencing_token(
        self, define: Define, worker: Worker, settings: Settings
    ) -> None:
        """P15"""
        define(works, concurrency="sequential")
        for tenant in ("acme", "globex", "acme"):
            send(1, tenant)
        fences = []
        for _ in range(3):
            taken = worker.take()
            fences.append(worker.claim(taken).fence)
            fences.append(worker.claim(taken).fence)
            worker.settle(taken)
        assert fences == sorted(set(fences))
        assert fences[0] > 0

    def test_what_a_dead_worker_held_is_claimed_by_its_next_run(
        self, define: Define, queue: QueueState, worker: Worker, settings: Settings
    ) -> None:
        """B189, P20, user-needs 16: redelivered when its lock has run out, before those behind it;
        the old owner cannot give back what is not its own any more."""
        settings.KUMIKO = {**settings.KUMIKO, "LOCK_SECONDS": 1}
        define(works, concurrency="sequential")
        a, b = (send(n).job_id for n in range(2))
        dead = worker.run()
        wait_until(worker.requeue_stalled, description="it is taken for lost", interval=0.05)
        again = worker.run()
        assert again.id == dead.id == a
        with pytest.raises(Refused):
            worker.settle(dead)
        assert queue.delayed == [b]
        worker.settle(again)
        assert worker.run().id == b

    def test_a_claim_without_the_lock_is_lost(
        self, define: Define, queue: QueueState, worker: Worker, kept: Kept
    ) -> None:
        define(works, concurrency="sequential")
        send()
        taken = worker.take()
        queue.client.set(queue.key(f"{taken.id}:lock"), "somebody-else")
        assert worker.claim(taken).verdict == "lost"
        assert list(kept.slots(KEY).values()) == [""]


def _ids(kept: Kept) -> list[str]:
    return [ref.partition(":")[2] for ref in kept.slots(KEY)]


class TestCap:
    """B057-B060, B204-B205, P01-P05, P08, P10, P11."""

    def test_over_the_cap_dispatches_are_skipped(
        self, define: Define, worker: Worker, kept: Kept
    ) -> None:
        """B042, B057, P02: per tenant; accepted again when there is room."""
        define(works, max_per_tenant=2)
        made = [send(n) for n in range(3)]
        assert [one.status for one in made] == ["queued", "queued", "skipped"]
        assert made[2].reason == "skipped:max-per-tenant"
        assert not made[2]
        assert send(4, "globex").status == "queued"
        taken = [worker.run() for _ in range(3)]
        assert send().status == "skipped"
        worker.settle(taken[0], Fail("final"))
        assert send().status == "queued"
        for one in [*taken[1:], worker.run()]:
            worker.settle(one)
        assert kept.left() == []

    @pytest.mark.parametrize("options", [{"priority": "low"}, {"delay": 60}])
    def test_prioritised_and_delayed_ones_count(
        self, define: Define, options: dict[str, Any]
    ) -> None:
        """P03"""
        define(works, max_per_tenant=1)
        send(**options)
        assert send().status == "skipped"

    def test_a_payload_that_names_a_tenant_changes_nothing(self, define: Define) -> None:
        """B058, B232, P11: the tenant is resolved once, for the cap as for the run."""
        define(works, max_per_tenant=1)
        sent = [
            dispatch(NAME, {"tenantId": tenant}, tenant_id="acme") for tenant in ("a", "b")
        ]  # fmt: skip
        assert [one.status for one in sent] == ["queued", "skipped"]

    def test_foreign_jobs_over_the_cap_are_parked(
        self, define: Define, queue: QueueState, worker: Worker, kept: Kept, redis_url: str
    ) -> None:
        """B060, B204, B205, P100: never more than the cap at once, and those that wait in order."""
        define(works, max_per_tenant=2)
        data = {"_tenantId": "acme"}
        ids = add_raw(redis_url, queue.queue, [(NAME, data, {})] * 4)
        running = [worker.run(), worker.run()]
        for _ in range(2):
            assert worker.claim(worker.take()).verdict == "parked"
        assert kept.parked(CAP) == ids[2:]
        assert send().status == "skipped"  # four have a place
        worker.settle(running.pop())
        running.append(worker.run())
        assert running[-1].id == ids[2]
        assert worker.fetch() is None
        for _ in range(2):
            worker.settle(running.pop())
        worker.settle(worker.run())
        assert kept.left() == []

    def test_a_tick_over_the_cap_is_skipped(
        self, define: Define, queue: QueueState, worker: Worker, redis_url: str
    ) -> None:
        """B056, P08: what a scheduler makes passes the door when it is fetched."""
        define(works, max_per_tenant=1)
        send()
        (tick,) = add_raw(redis_url, queue.queue, [(NAME, {"_tenantId": "acme"}, {})])
        queue.client.hset(queue.key(tick), "rjk", "scheduler")
        worker.run()
        claim = worker.claim(worker.take())
        assert (claim.verdict, claim.reason) == ("skipped", "skipped:max-per-tenant")

    def test_with_another_mode(self, define: Define, queue: QueueState) -> None:
        """B041: the new one takes the place of the one that it replaces."""
        define(works, concurrency="replace", max_per_tenant=1)
        assert [send(n).status for n in range(3)] == ["queued", "replaced", "replaced"]
        assert len(queue.wait) == 1

    def test_the_cap_comes_before_the_mode(
        self, define: Define, queue: QueueState, worker: Worker
    ) -> None:
        """B041: what is refused for the cap removes nothing, and does not count as accepted."""
        define(works, concurrency="replace", max_per_tenant=1)
        first = send()
        worker.run()
        refused = send(1)
        assert (refused.status, refused.reason) == ("skipped", "skipped:max-per-tenant")
        assert (queue.active, queue.pending()) == ([first.job_id], 1)


class TestForeignAndTicks:
    """B055, B056, P08: every path passes the door."""

    def test_skip(self, define: Define, queue: QueueState, worker: Worker, redis_url: str) -> None:
        define(works, concurrency="skip")
        jobs: list[Any] = [
            (NAME, {"_tenantId": tenant}, {}) for tenant in ("acme", "acme", "globex")
        ]
        add_raw(redis_url, queue.queue, jobs)
        verdicts = [worker.claim(worker.take()).verdict for _ in jobs]
        assert verdicts == ["run", "skipped", "run"]
        assert send().status == "skipped"

    def test_replace(
        self, define: Define, queue: QueueState, worker: Worker, redis_url: str
    ) -> None:
        define(works, concurrency="replace")
        (foreign,) = add_raw(redis_url, queue.queue, [(NAME, {"_tenantId": "acme"}, {})])
        send()
        assert worker.run().id == foreign
        assert queue.wait == []

    def test_throttle(
        self, define: Define, queue: QueueState, worker: Worker, redis_url: str
    ) -> None:
        define(works, concurrency="throttle", throttle=60)
        add_raw(redis_url, queue.queue, [(NAME, {"_tenantId": "acme"}, {})] * 2)
        claims = [worker.claim(worker.take()) for _ in range(2)]
        assert [claim.verdict for claim in claims] == ["run", "skipped"]
        assert claims[1].reason == "throttled"

    def test_debounce(
        self, define: Define, queue: QueueState, worker: Worker, redis_url: str
    ) -> None:
        define(works, concurrency="debounce", debounce=30)
        ids = add_raw(redis_url, queue.queue, [(NAME, {"_tenantId": "acme"}, {})] * 3)
        assert [worker.claim(worker.take()).verdict for _ in ids] == ["parked"] * 3
        assert queue.delayed == ids[2:]
        assert queue.wait == queue.active == []
        assert 28 < queue.due_at(ids[2]) - time.time() <= 30
        assert send().status == "debounced"


class TestSweeper:
    """Design 4: what nobody hands over is handed over by the sweeper."""

    @pytest.fixture(autouse=True)
    def _short_locks(self, settings: Settings) -> None:
        settings.KUMIKO = {**settings.KUMIKO, "LOCK_SECONDS": 1}

    def swept(self, count: int) -> None:
        """A key is not looked at again and again."""
        granted = []

        def enough() -> bool:
            granted.append(sweep())
            return sum(granted) >= count

        wait_until(enough, description=f"{count} slots are granted", timeout=5, interval=0.05)

    def test_the_holder_was_removed(
        self, define: Define, queue: QueueState, worker: Worker, kept: Kept
    ) -> None:
        define(works, concurrency="sequential")
        a, b, c = (send(n).job_id for n in range(3))
        queue.client.delete(queue.key(a), queue.key(b))
        queue.client.lrem(queue.key("wait"), 0, a)
        queue.client.zrem(queue.key("delayed"), b)
        self.swept(1)
        taken = worker.run()
        assert taken.id == c
        worker.settle(taken)
        assert kept.left() == []

    @pytest.mark.parametrize("how", ["finished", "postponed"])
    def test_the_holder_was_ended_or_postponed_by_another_client(
        self, define: Define, queue: QueueState, worker: Worker, how: str
    ) -> None:
        define(works, concurrency="sequential")
        a, b = (send(n).job_id for n in range(2))
        queue.client.lrem(queue.key("wait"), 0, a)
        if how == "finished":
            queue.client.hset(queue.key(a), "finishedOn", "1")
        else:
            queue.client.zadd(queue.key("delayed"), {a: (time.time() + 99) * 4096000})
        self.swept(1)
        assert worker.run().id == b

    def test_the_holder_runs_at_another_client_that_claims_nothing(
        self, define: Define, queue: QueueState, worker: Worker
    ) -> None:
        define(works, concurrency="sequential")
        _, b = (send(n).job_id for n in range(2))
        taken = worker.take()
        queue.client.set(queue.key(f"{taken.id}:lock"), taken.token)  # it keeps its lock
        self.swept(1)
        assert worker.run().id == b

    def test_a_holder_that_waits_or_runs_keeps_its_slot(
        self, define: Define, queue: QueueState, worker: Worker, kept: Kept
    ) -> None:
        """P15: a grant has no clock of its own, and the right to run none but the queue's lock."""
        define(works, concurrency="sequential")
        a, b = (send(n).job_id for n in range(2))
        looked_at = time.monotonic() + 1.2
        wait_until(lambda: sweep() or time.monotonic() > looked_at, description="some passes")
        taken = worker.run()
        queue.client.set(queue.key(f"{taken.id}:lock"), taken.token)
        looked_at = time.monotonic() + 1.2
        wait_until(lambda: sweep() or time.monotonic() > looked_at, description="some passes")
        assert taken.id == a
        assert kept.parked(KEY) == [b]

    def test_a_parked_job_that_was_promoted_waits_again(
        self, define: Define, queue: QueueState, worker: Worker, kept: Kept
    ) -> None:
        define(works, concurrency="sequential")
        a, b, c = (send(n).job_id for n in range(3))
        queue.client.zadd(queue.key("delayed"), {c: 1})
        first = worker.run()
        promoted = worker.take()
        assert (first.id, promoted.id) == (a, c)
        assert worker.claim(promoted).verdict == "parked"
        assert kept.parked(KEY) == [b, c] == queue.delayed
