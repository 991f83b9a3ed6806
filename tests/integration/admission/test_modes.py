"""The modes at dispatch, one step in Redis each, with a worker that the test leads by hand."""

from __future__ import annotations

import datetime as dt
import time
from typing import Any

import pytest
import redis

from kumiko_django import JobContext, dispatch, dispatch_many
from kumiko_django.broker.delivery import Complete, Fail, GiveBack, Retry
from tests.helpers.queues import QueueState
from tests.helpers.waiting import wait_until
from tests.integration.admission.kept import Kept, Worker
from tests.integration.worker.host_thread import Define, found

pytestmark = pytest.mark.once

NAME = "testapp:job:works"


def works(payload: dict[str, Any], ctx: JobContext) -> None:
    """Never called here."""


def send(number: int = 0, tenant: str = "acme", **options: Any) -> Any:
    return dispatch(NAME, {"number": number}, tenant_id=tenant, **options)


def test_parallel_jobs_take_no_place_and_pay_nothing(define: Define, kept: Kept) -> None:
    """B050, design 4: neither mode nor cap, so nothing is kept and the package's script runs."""
    define(works)
    assert [send(n).status for n in range(3)] == ["queued"] * 3
    assert kept.left() == []
    assert kept.client.exists(f"{kept.base}counter") == 0


class TestSkip:
    """P01-P03, B051."""

    def test_a_peer_of_the_same_tenant_in_whatever_state(
        self, define: Define, worker: Worker, kept: Kept
    ) -> None:
        """B043, B051, P02, P03: waiting, running, in backoff, given back; until its end."""
        define(works, concurrency="skip", retries=1)
        first = send(1)
        assert (first.status, first.reason, bool(first)) == ("queued", None, True)
        refused = send(2)
        assert (refused.status, refused.reason, bool(refused)) == ("skipped", "skipped", False)
        assert refused.job_id not in ("skipped", first.job_id)
        assert send(3, "globex").status == "queued"
        taken = worker.take()
        assert send().status == "skipped"
        worker.settle(taken, GiveBack())
        assert send().status == "skipped"
        worker.settle(worker.take(), Retry(60_000, "in backoff"))
        assert send().status == "skipped"
        assert [ref.partition(":")[2] for ref in kept.places(f"{NAME}:acme")] == [first.job_id]

    @pytest.mark.parametrize("end", [Complete(), Fail("final")])
    def test_the_end_of_the_peer_gives_its_place_back(
        self, define: Define, worker: Worker, kept: Kept, end: Any
    ) -> None:
        define(works, concurrency="skip")
        send()
        worker.settle(worker.take(), end)
        assert kept.left() == []
        assert send().status == "queued"

    @pytest.mark.parametrize("options", [{"priority": "low"}, {"priority": 5}, {"delay": 60}])
    def test_prioritised_and_delayed_peers_count(
        self, define: Define, options: dict[str, Any]
    ) -> None:
        """P03: the original looks at two lists only."""
        define(works, concurrency="skip")
        assert send(**options).status == "queued"
        assert send().status == "skipped"

    def test_the_scope_may_be_global(self, define: Define) -> None:
        define(works, concurrency="skip", concurrency_scope="global")
        assert send(1, "acme").status == "queued"
        assert send(2, "globex").status == "skipped"

    def test_a_peer_that_was_removed_or_ended_elsewhere_holds_nothing_up(
        self, define: Define, queue: QueueState, worker: Worker
    ) -> None:
        """Design 4: a full key is looked through first."""
        define(works, concurrency="skip")
        gone = send().job_id
        queue.client.delete(queue.key(gone))
        queue.client.lrem(queue.key("wait"), 0, gone)
        second = send()
        assert second.status == "queued"
        queue.client.hset(queue.key(second.job_id), "finishedOn", "1")
        assert send().status == "queued"

    def test_dispatch_many_admits_one(self, define: Define, queue: QueueState) -> None:
        define(works, concurrency="skip")
        made = dispatch_many(NAME, [{"n": n} for n in range(300)], tenant_id="acme")
        assert [one.status for one in made] == ["queued"] + ["skipped"] * 299
        assert queue.wait == [made[0].job_id]


class TestReplace:
    """B052, B233, P05."""

    def test_the_last_one_stays(self, define: Define, queue: QueueState, kept: Kept) -> None:
        define(works, concurrency="replace")
        made = [send(n) for n in range(3)]
        assert [one.status for one in made] == ["queued", "replaced", "replaced"]
        assert all(made)
        assert len({one.job_id for one in made}) == 3
        assert queue.wait == [made[-1].job_id]
        assert queue.job(made[-1].job_id).data["number"] == 2
        assert not queue.exists(made[0].job_id)
        assert len(kept.places(f"{NAME}:acme")) == 1

    def test_other_tenants_work_stays(self, define: Define, queue: QueueState) -> None:
        """P02"""
        define(works, concurrency="replace")
        made = [send(1, "acme"), send(2, "globex"), send(3, "acme")]
        assert queue.wait == [made[1].job_id, made[2].job_id]

    def test_a_running_one_is_left(self, define: Define, queue: QueueState, worker: Worker) -> None:
        """B233: the original's removal of a job that has just begun raises."""
        define(works, concurrency="replace")
        running = send(1)
        taken = worker.take()
        waiting, last = send(2), send(3)
        assert (waiting.status, last.status) == ("queued", "replaced")
        assert (queue.active, queue.wait) == ([running.job_id], [last.job_id])
        worker.settle(taken)
        assert queue.completed == [running.job_id]

    @pytest.mark.parametrize("options", [{"priority": "low"}, {"delay": 60}])
    def test_prioritised_and_delayed_ones_give_way(
        self, define: Define, queue: QueueState, options: dict[str, Any]
    ) -> None:
        """P03"""
        define(works, concurrency="replace")
        send(1, **options)
        last = send(2)
        assert queue.counts() | {"wait": 0} == dict.fromkeys(queue.counts(), 0)
        assert queue.wait == [last.job_id]

    def test_one_in_backoff_gives_way(
        self, define: Define, queue: QueueState, worker: Worker
    ) -> None:
        """P03"""
        define(works, concurrency="replace", retries=1)
        send(1)
        worker.settle(worker.take(), Retry(60_000, "in backoff"))
        assert send(2).status == "replaced"
        assert queue.delayed == []

    def test_far_from_the_ends_of_the_queue_it_is_made_void(
        self, define: Define, queue: QueueState, worker: Worker
    ) -> None:
        """Looking for its id would cost what the queue is long: it stays, and does not run."""
        define(works, concurrency="replace")
        others = define(works, name="other")
        dispatch_many(others, [{}] * 300, tenant_id="acme")
        replaced = send(1)
        dispatch_many(others, [{}] * 300, tenant_id="acme")
        last = send(2)
        assert last.status == "replaced"
        # Other clients fail it without running it.
        assert queue.job(replaced.job_id).raw["defa"]
        ids = []
        while (taken := worker.fetch()) is not None:
            ids.append(taken.id)
            worker.settle(taken)
        assert len(ids) == 601
        assert ids[-1] == last.job_id
        assert replaced.job_id not in ids
        assert not queue.exists(replaced.job_id)


class TestDebounce:
    """P06: after a quiet time, with the last payload."""

    def test_the_last_payload_runs_once(self, define: Define, queue: QueueState) -> None:
        """B053."""
        define(works, concurrency="debounce", debounce=dt.timedelta(seconds=30))
        made = [send(n) for n in range(5)]
        assert [one.status for one in made] == ["queued"] + ["debounced"] * 4
        assert all(made)
        assert queue.delayed == [made[-1].job_id]
        assert queue.job(made[-1].job_id).data["number"] == 4
        assert 28 < queue.due_at(made[-1].job_id) - time.time() <= 30

    def test_it_does_not_wait_longer_than_max_wait(
        self, define: Define, queue: QueueState, raw_redis: redis.Redis
    ) -> None:
        define(works, concurrency="debounce", debounce=30, max_wait=40)
        first = send(1)
        # As if the first had come 25 s ago.
        since = int(queue.job(first.job_id).raw["kumiko"].partition("/")[0])
        raw_redis.hset(queue.key(first.job_id), "kumiko", f"{since - 25_000}/0")
        second = send(2)
        assert 13 < queue.due_at(second.job_id) - time.time() <= 15
        third = send(3)
        assert 13 < queue.due_at(third.job_id) - time.time() <= 15

    def test_one_that_runs_is_not_touched(
        self, define: Define, queue: QueueState, worker: Worker
    ) -> None:
        define(works, concurrency="debounce", debounce=0.05)
        first = send(1)
        taken = found(wait_until(worker.fetch, description="the quiet time is over"))
        assert taken.id == first.job_id
        second = send(2)
        assert second.status == "queued"
        worker.settle(taken)
        assert found(wait_until(worker.fetch, description="it is due")).id == second.job_id

    def test_a_delay_of_the_dispatch_is_refused(self, define: Define) -> None:
        define(works, concurrency="debounce", debounce=5)
        with pytest.raises(ValueError, match="debounce= says when"):
            send(delay=3)


class TestThrottle:
    """B053, P06: the original's 'debounce', by its name."""

    def test_the_first_wins(self, define: Define, queue: QueueState, worker: Worker) -> None:
        """B053, P07: those after it are dropped, not only said to be; until the window is over."""
        define(works, concurrency="throttle", throttle=0.3)
        first = send(1)
        later = [send(n) for n in range(2, 6)]
        assert [one.status for one in later] == ["throttled"] * 4
        assert not any(later)
        other = send(6, "globex")
        assert other.status == "queued"
        assert queue.wait == [first.job_id, other.job_id]
        assert queue.pending() == 2
        assert queue.job(first.job_id).data["number"] == 1
        wait_until(lambda: send(7), description="the window is over")


def test_a_dispatch_that_is_sent_twice_is_admitted_once(define: Define, queue: QueueState) -> None:
    """An answer may be lost on its way; the door knows the job by its id."""
    from kumiko_django.broker import producer
    from kumiko_django.dispatching.request import Request, build, find_definition

    define(works, concurrency="skip")
    job = build(find_definition(NAME), {}, Request(tenant_id="acme"))
    assert [producer.add(job).status for _ in range(2)] == ["queued", "queued"]
    assert queue.wait == [job.job_id]
