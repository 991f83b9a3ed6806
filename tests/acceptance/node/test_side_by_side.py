"""Node's workers, schedulers and administration on the queues of a running worker of ours."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import pytest
import redis

from kumiko_django import (
    Cron,
    Dispatched,
    Every,
    JobContext,
    dispatch,
    dispatch_many,
    pending_count,
)
from kumiko_django.history.models import JobRun
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.node import Node
from tests.helpers.waiting import wait_until
from tests.integration.worker.host_thread import Define, StartHost, ended_run, ended_runs
from tests.integration.worker.schedulers import Schedulers

pytestmark = pytest.mark.once

JOBS = 60


SHARE = """
globalThis.theirs = [];
work(async (job) => {
  await redis.sadd(begun, "node");
  await until(() => redis.sismember(begun, "ours"));
  globalThis.theirs.push(job.id);
  return "node";
}, { concurrency: 2 });
"""


def test_both_work_on_one_queue(
    node: Node,
    define: Define,
    host: StartHost,
    queue_state: QueueStateFactory,
    raw_redis: redis.Redis,
    queue_prefix: str,
) -> None:
    """P12, design 5: every job is ended by one of them, and each of them has its part.

    Each holds its first job until the other has one, too.
    """
    begun = f"{queue_prefix}:begun"
    ours: list[str] = []

    def shared(payload: dict[str, Any], ctx: JobContext) -> str:
        raw_redis.sadd(begun, "ours")
        wait_until(lambda: raw_redis.sismember(begun, "node"), description="Node has a job")
        ours.append(ctx.job_id)
        return "ours"

    job = define(shared)
    node.run(
        SHARE,
        begun=begun,
    )
    host("worker", concurrency=2)
    sent = dispatch_many(job, [{"n": number} for number in range(JOBS)], tenant_id="acme")
    wait_until(lambda: len(queue_state().completed) == JOBS, description="all are completed")
    theirs: list[str] = node.run("return globalThis.theirs")
    assert ours
    assert theirs
    assert Counter([*ours, *theirs]) == Counter(one.job_id for one in sent)
    returned = {one.id: one.returned for one in queue_state().jobs("completed")}
    assert returned == {**dict.fromkeys(ours, "ours"), **dict.fromkeys(theirs, "node")}
    wait_until(lambda: JobRun.objects.count() == len(ours), description="ours are on record")
    assert pending_count() == 0


def test_its_schedulers_beside_ours(
    node: Node, define: Define, host: StartHost, queue_state: QueueStateFactory
) -> None:
    """B101, P48: our worker leaves them alone, runs their occurrences, and makes the next ones."""
    seen: Counter[str] = Counter()

    def ticks(payload: dict[str, Any], ctx: JobContext) -> None:
        seen[payload.get("of", "ours")] += 1

    define(ticks, trigger=Every(0.2), tenant="system")
    node.run(
        """
        const opts = { removeOnComplete: { age: 60 }, removeOnFail: { age: 60 } };
        await queue().upsertJobScheduler("theirs", { every: 200 },
          { name, data: { of: "node" }, opts });
        await queue().upsertJobScheduler("their-cron", { pattern: "0 5 * * *", tz: "Asia/Tokyo" },
          { name, data: { of: "cron" }, opts });
        """,
        name="testapp:job:ticks",
    )
    schedulers = Schedulers(queue_state())
    before = schedulers.record("their-cron")
    host("worker")
    wait_until(lambda: min(seen["ours"], seen["node"]) >= 3, description="both have run thrice")
    assert schedulers.record("their-cron") == before
    assert set(schedulers.ids()) == {"theirs", "their-cron", "scheduler-testapp-job-ticks"}
    known = node.run("return (await queue().getJobSchedulers()).map((one) => one.key)")
    assert set(known) == set(schedulers.ids())
    node.run("await queue().removeJobScheduler('theirs')")
    runs = JobRun.objects.filter(queue_job_id__startswith="repeat:theirs:")
    wait_until(lambda: runs.filter(status="completed").count() >= 3, description="on record")


def test_it_pauses_and_resumes_a_queue(
    node: Node, define: Define, host: StartHost, queue_state: QueueStateFactory
) -> None:
    """bullmq-python 3: our worker takes nothing meanwhile, and nothing is lost by it.

    BullMQ 5 keeps what waits in a list of its own while a queue is paused.
    """
    ran: list[str] = []

    def notes(payload: dict[str, Any], ctx: JobContext) -> None:
        ran.append(payload["case"])

    job = define(notes)

    def send(case: str, **options: Any) -> str:
        return dispatch(job, {"case": case}, tenant_id="acme", **options).job_id

    send("first")
    due_at = queue_state().due_at(send("due meanwhile", delay=0.05))
    node.run("await queue().pause()")
    node.run(
        "await queue().add(name, { _tenantId: 'acme', case: 'of Node' })", name=job.qualified_name
    )
    assert node.run("return queue().isPaused()")
    wait_until(lambda: time.time() > due_at, description="the delayed one is due")
    host("worker", concurrency=1)
    wait_until(
        lambda: not queue_state().paused and not queue_state().delayed,
        description="all wait in one list",
    )
    send("second")
    send("by priority", priority="low")
    assert not ran
    assert pending_count() == 5
    node.run("await queue().resume()")
    wait_until(lambda: pending_count() == 0, description="all have run")
    assert ran[-1] == "by priority"
    assert sorted(ran) == ["by priority", "due meanwhile", "first", "of Node", "second"]


def test_its_limits_hold_for_our_worker(node: Node, define: Define, host: StartHost) -> None:
    """bullmq-python 1.4: a rate and a concurrency of the queue, which nobody waits longer for.

    With the pauses of an idle queue ten jobs would take the better part of a minute.
    """
    now, most, begun = [0], [0], list[float]()

    def slow(payload: dict[str, Any], ctx: JobContext) -> None:
        begun.append(time.monotonic())
        now[0] += 1
        most[0] = max(most[0], now[0])
        time.sleep(0.01)
        now[0] -= 1

    job = define(slow)
    node.run("await queue().setGlobalConcurrency(1)")
    host("worker", concurrency=3)
    dispatch_many(job, [{}] * 10, tenant_id="acme")
    wait_until(lambda: pending_count() == 0, description="all have run")
    assert (len(begun), most) == (10, [1])
    node.run("await queue().removeGlobalConcurrency(); await queue().setGlobalRateLimit(5, 300);")
    dispatch_many(job, [{}] * 11, tenant_id="acme")
    wait_until(lambda: pending_count() == 0, description="all have run, by and by")
    assert len(begun) == 21
    assert begun[20] - begun[10] > 0.3


def test_it_retries_promotes_and_removes(
    node: Node, define: Define, host: StartHost, queue_state: QueueStateFactory
) -> None:
    """B218: what an operator does in a board of BullMQ's; a job retried by hand is a new run."""
    broken = threading.Event()
    broken.set()

    def plain(payload: dict[str, Any], ctx: JobContext) -> str:
        if broken.is_set():
            raise ValueError("not yet")
        return "done"

    job = define(plain)
    host("worker")
    first = dispatch(job, tenant_id="acme").job_id
    assert ended_run(first).status == "failed"
    later, gone = (dispatch(job, tenant_id="acme", delay=600).job_id for _ in range(2))
    counts = node.run("return queue().getJobCounts('failed', 'delayed', 'active', 'completed')")
    assert counts == {"failed": 1, "delayed": 2, "active": 0, "completed": 0}
    broken.clear()
    node.run(
        """
        await (await queue().getJob(first)).retry("failed");
        await (await queue().getJob(later)).promote();
        await queue().remove(gone);
        """,
        first=first, later=later, gone=gone,
    )  # fmt: skip
    assert ended_run(later).status == "completed"
    failed, retried = ended_runs(first, 2)
    assert (failed.status, retried.status, retried.result) == ("failed", "completed", "done")
    assert not JobRun.objects.filter(queue_job_id=gone).exists()
    assert pending_count() == 0


class Turns:
    """A sequential job whose first run holds its turn until it is told to end."""

    def __init__(self, define: Define) -> None:
        self.go_on = threading.Event()
        self.order: list[str] = []
        self._job = define(self._run, name="in-turn", concurrency="sequential")

    def send(self) -> Dispatched:
        return dispatch(self._job, tenant_id="acme")

    def send_first(self) -> str:
        job_id = self.send().job_id
        wait_until(lambda: self.order == [job_id], description="the first one runs")
        return job_id

    def _run(self, payload: dict[str, Any], ctx: JobContext) -> None:
        self.order.append(ctx.job_id)
        assert self.go_on.wait(15)


def test_it_promotes_what_has_no_turn(
    node: Node, define: Define, host: StartHost, queue_state: QueueStateFactory
) -> None:
    """Design 4: a parked job that Node promotes is parked again, in its old place."""
    turns = Turns(define)
    host("worker")
    first = turns.send_first()
    parked = [turns.send().job_id for _ in range(2)]
    node.run("await (await queue().getJob(id)).promote()", id=parked[1])

    def is_parked_again() -> bool:
        fetched = queue_state().job(parked[1]).attempts_started == 1
        return fetched and parked[1] in queue_state().delayed

    wait_until(is_parked_again, description="it has been fetched and is parked again")
    assert turns.order == [first]
    turns.go_on.set()
    wait_until(lambda: pending_count() == 0, description="all have run")
    assert turns.order == [first, *parked]


def test_it_empties_our_queue(
    node: Node, define: Define, host: StartHost, queue_state: QueueStateFactory
) -> None:
    """Design 4, P51: what is drained or obliterated holds nobody up; schedules come back."""
    turns, schedulers = Turns(define), Schedulers(queue_state())
    trigger = Cron("0 0 29 2 *", tz="UTC")
    define(lambda payload, ctx: None, name="planned", trigger=trigger, tenant="system")
    worker = host("worker")
    first = turns.send_first()
    parked = turns.send()
    assert parked.status == "parked"
    node.run("await queue().drain(true)")
    assert not queue_state().exists(parked.job_id)
    assert turns.send().status == "parked"
    node.run("await queue().obliterate({ force: true }); await queue().resume();")
    turns.go_on.set()
    wait_until(lambda: pending_count() == 0, description="the queue is empty")
    again = turns.send()
    assert again.status == "queued"
    assert ended_run(again.job_id).status == "completed"
    assert turns.order == [first, again.job_id]
    wait_until(
        lambda: schedulers.ids() == ["scheduler-testapp-job-planned"],
        description="the schedule is back",
    )
    assert worker.running
