"""A fetched tick makes the next one; missed occurrences; broken chains (P51, P53)."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from kumiko_django import Cron, Every, JobContext, JobDefinition
from kumiko_django.broker.channel import Channel
from kumiko_django.broker.connection import current_address, new_async_client
from kumiko_django.broker.schedulers import milliseconds, moment
from kumiko_django.broker.ticks import Ticks, was_missed
from kumiko_django.history.models import JobRun
from kumiko_django.worker.scheduler import watch
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.waiting import wait_until
from tests.integration.worker.host_thread import RETENTION, Define, StartHost, ended_run, ended_runs
from tests.integration.worker.schedulers import (
    HOUR_MS,
    Schedulers,
    follow,
    now_ms,
    with_queue,
)

pytestmark = pytest.mark.once

ID = "scheduler-testapp-job-sweep"
NAME = "testapp:job:sweep"


async def sweep(payload: Any, ctx: JobContext) -> dict[str, Any]:
    return {
        "payload": payload,
        "tenant": ctx.tenant_id,
        "user": ctx.triggered_by is None,
        "trigger": ctx.trigger_name,
        "own chain": ctx.correlation_id == ctx.request_id,
    }


@pytest.fixture
def schedulers(queue_state: QueueStateFactory) -> Schedulers:
    return Schedulers(queue_state("worker"))


def scheduled(define: Define, trigger: Any, **options: Any) -> JobDefinition:
    return define(sweep, **{"trigger": trigger, "tenant": "system", **options})


def runs() -> list[JobRun]:
    return list(JobRun.objects.filter(job_name=NAME).order_by("started_at", "queue_job_id"))


def times(found: list[JobRun]) -> list[int]:
    """The times of the occurrences that ran, in milliseconds."""
    return [int(run.queue_job_id.rsplit(":", 1)[1]) for run in found]


def ended(count: int) -> list[JobRun]:
    def all_ended() -> list[JobRun] | None:
        done = [run for run in runs() if run.status != "running"]
        return done if len(done) >= count else None

    found = wait_until(all_ended, description=f"{count} occurrences have run", timeout=20)
    assert found is not None
    return found


def go_on() -> bool:
    return True


def repair() -> int:
    return watch(dt.datetime.now(dt.UTC), go_on)


# ------------------------------------------------------------------------------------ fetching one


def test_a_schedule_runs_at_its_times_and_nobody_is_behind_it(
    define: Define, host: StartHost, schedulers: Schedulers
) -> None:
    """B002, B099, B100, B121, P51: one after the other, of SYSTEM, each a chain of its own."""
    scheduled(define, Every(1))
    host("worker")

    found = ended(3)

    due = times(found)
    assert due == sorted(set(due))
    assert all(later - earlier == 1000 for earlier, later in pairwise(due))
    assert {run.status for run in found} == {"completed"}
    assert found[0].result == {
        "payload": {}, "tenant": "00000000-0000-4000-8000-000000000000", "user": True,
        "trigger": None, "own chain": True,
    }  # fmt: skip
    for run in found:
        assert 0 <= milliseconds(run.started_at) - int(run.queue_job_id.rsplit(":", 1)[1]) < 900
    assert schedulers.ids() == [ID]


def test_the_next_tick_is_there_before_the_run_is_over(
    define: Define, host: StartHost, schedulers: Schedulers
) -> None:
    """P51: made when it is fetched, from the record, by our own times."""
    cron = Cron("0 9 * * *", tz="America/New_York")
    scheduled(define, cron)
    host("worker")
    first_ms = wait_until(
        lambda: schedulers.ids() and schedulers.next_ms(ID), description="it is scheduled"
    )
    assert first_ms == milliseconds(cron.next_after(moment(now_ms())))

    late_ms = schedulers.make_due(ID, 1)
    ended_run(f"repeat:{ID}:{late_ms}")

    assert schedulers.next_ms(ID) == first_ms
    assert schedulers.state.delayed == [f"repeat:{ID}:{first_ms}"]
    assert schedulers.record(ID)["ic"] == "3"
    assert schedulers.state.job(schedulers.tick(ID)).opts["repeat"]["count"] == 3


def test_a_failed_occurrence_is_retried_and_makes_no_second_chain(
    define: Define, host: StartHost, schedulers: Schedulers
) -> None:
    """P51: the retry of a tick is no tick."""

    async def fails(payload: Any, ctx: JobContext) -> None:
        raise ValueError("on purpose")

    define(
        fails, name="sweep", trigger=Cron("@yearly"), tenant="system", retries=2,
    )  # fmt: skip
    host("worker")
    wait_until(schedulers.ids, description="it is scheduled")
    late_ms = schedulers.make_due(ID, 1)

    found = ended_runs(f"repeat:{ID}:{late_ms}", 3)

    assert [run.attempt for run in found] == [1, 2, 3]
    assert schedulers.state.delayed == [schedulers.tick(ID)]
    assert schedulers.record(ID)["ic"] == "3"


def test_a_worker_of_another_version_goes_on_from_the_record(
    define: Define, host: StartHost, schedulers: Schedulers
) -> None:
    """P48, P54: its own pattern, which does not hold, is not what comes next."""
    mine = Cron("30 * * * *", tz="Europe/Berlin")
    theirs = Cron("@yearly", tz="Asia/Tokyo")
    scheduled(define, mine)
    follow(JobDefinition(handler=sweep, app_label="testapp", tenant="system", trigger=mine))
    newer = JobDefinition(handler=sweep, app_label="testapp", tenant="system", trigger=theirs)
    process = follow(newer)
    host("worker")
    process.follow()
    late_ms = schedulers.make_due(ID, 1)

    ended_run(f"repeat:{ID}:{late_ms}")

    assert schedulers.record(ID)["pattern"] == theirs.pattern
    assert schedulers.next_ms(ID) == milliseconds(theirs.next_after(moment(now_ms())))


def test_schedulers_of_other_clients_go_on_as_the_package_does_it(
    define: Define, host: StartHost, schedulers: Schedulers, redis_url: str, queue_prefix: str
) -> None:
    """P48: their ticks run, and each makes the next."""
    define(sweep, tenant="system")

    async def upsert(queue: Any) -> Any:
        await queue.upsertJobScheduler("theirs", {"every": 500}, NAME, {}, RETENTION)

    with_queue(redis_url, f"{queue_prefix}-worker", upsert)
    host("worker")

    ended(3)

    assert schedulers.ids() == ["theirs"]
    assert "kumiko" not in schedulers.record("theirs")


def test_a_tick_whose_scheduler_is_gone_still_runs(
    define: Define, host: StartHost, schedulers: Schedulers
) -> None:
    """P48: an occurrence that was due when its schedule was removed."""
    define(sweep, tenant="system")
    follow(JobDefinition(handler=sweep, app_label="testapp", tenant="system", trigger=Every(3600)))
    late_ms = schedulers.make_late(ID, 60)
    schedulers.client.delete(schedulers.state.key("kumiko-schedulers"))

    host("worker")

    assert ended_run(f"repeat:{ID}:{late_ms}").status == "completed"
    assert schedulers.ids() == []
    assert schedulers.state.delayed == []


# ---------------------------------------------------------------------------------------- missed


def _missed(define: Define, schedulers: Schedulers, catch_up: Any) -> tuple[JobDefinition, int]:
    """A schedule every 5 s whose workers have been away over two occurrences."""
    definition = scheduled(define, Every(5), catch_up=catch_up)
    follow(definition)
    # Not so near to the next occurrence that a slow machine gets into it.
    wait_until(lambda: now_ms() % 5000 < 2500, description="a quiet moment", timeout=10)
    now = now_ms() // 5000 * 5000
    schedulers.make_late(ID, (now_ms() - now) / 1000 + 5)
    schedulers.all_were_away(30)
    return definition, now


@pytest.mark.parametrize(
    ("catch_up", "missed"), [("one", [-5000]), ("none", [-5000]), ("all", [-5000, 0])]
)
def test_what_was_missed_while_nothing_ran(
    define: Define,
    host: StartHost,
    schedulers: Schedulers,
    caplog: pytest.LogCaptureFixture,
    catch_up: str,
    missed: list[int],
) -> None:
    """P53, user-needs 32: down over two occurrences, one run, none, or both; then as planned.

    That there is none is on record like every skip that no caller sees (design 6).
    """
    _, last_ms = _missed(define, schedulers, catch_up)
    with caplog.at_level(logging.WARNING, "kumiko_django.broker"):
        host("worker")

        found = ended(len(missed) + 1)

    assert times(found)[: len(missed) + 1] == [last_ms + each for each in missed] + [last_ms + 5000]
    assert schedulers.state.counts()["active"] == 0
    told = "catch_up is 'none'" in caplog.text
    assert told == (catch_up == "none") == (found[0].status == "skipped")
    assert {run.status for run in found[1:]} == {"completed"}
    if told:
        assert found[0].reason == "missed: no worker was there, and catch_up is 'none'"
        assert (found[0].attempt, found[0].start, found[0].final) == (0, 0, True)
        assert found[0].queue_job_id in schedulers.state.completed, "done, as far as the queue goes"


def test_all_that_was_missed_waits_for_one_another(
    define: Define, host: StartHost, schedulers: Schedulers
) -> None:
    """P53, P52: one that is fetched while the one before it runs is not dropped."""
    running, most, go = set[str](), list[int](), threading.Event()

    def works(payload: Any, ctx: JobContext) -> None:
        running.add(ctx.job_id)
        most.append(len(running))
        go.wait(10)
        running.remove(ctx.job_id)

    follow(define(works, name="sweep", tenant="system", trigger=Every(3600), catch_up="all"))
    schedulers.make_late(ID, now_ms() % HOUR_MS / 1000 + 3600)
    host("worker")
    wait_until(lambda: running and schedulers.next_ms(ID) > now_ms(), description="both fetched")
    go.set()
    found = ended(2)
    assert {run.status for run in found} == {"completed"}
    assert times(found) == sorted(times(found))
    assert set(most) == {1}


def test_late_is_not_missed(define: Define, host: StartHost, schedulers: Schedulers) -> None:
    """P53: with `none`, a tick that waited for a busy worker still runs."""
    follow(scheduled(define, Every(3600), catch_up="none"))
    late_ms = schedulers.make_late(ID, 60)
    key = schedulers.state.key("kumiko-schedulers")
    schedulers.client.hset(key, mapping={"since": "1000", "gone": "0", "seen": str(now_ms())})

    host("worker")

    assert ended_run(f"repeat:{ID}:{late_ms}").status == "completed"


@pytest.mark.parametrize(
    ("tick", "state", "expected"),
    [
        (5_000, [99_000, 50_000, 1_000], True),  # between the last worker and the next
        (500, [99_000, 50_000, 1_000], False),  # due before they went away
        (60_000, [99_000, 50_000, 1_000], False),  # due while there was one
        (60_000, [40_000, 10_000, 0], True),  # Redis was away; nobody has spoken since
        (30_000, [40_000, 10_000, 0], False),
        (60_000, [None, None, None], True),
    ],
)
def test_what_counts_as_missed(tick: int, state: list[Any], expected: bool) -> None:
    """P53: due while the lane had no worker, whoever fetches it."""
    assert was_missed(tick, 100_000, 10_000, state) is expected


# ----------------------------------------------------------------------------------- broken chains


def _finish(schedulers: Schedulers, late_ms: int) -> None:
    tick = f"repeat:{ID}:{late_ms}"
    schedulers.client.zrem(schedulers.state.key("delayed"), tick)
    schedulers.client.zadd(schedulers.state.key("completed"), {tick: now_ms()})
    schedulers.client.hset(schedulers.state.key(tick), "finishedOn", str(now_ms()))


def _remove(schedulers: Schedulers, late_ms: int) -> None:
    tick = f"repeat:{ID}:{late_ms}"
    schedulers.client.zrem(schedulers.state.key("delayed"), tick)
    schedulers.client.delete(schedulers.state.key(tick))


def _lead_astray(schedulers: Schedulers, late_ms: int) -> None:
    schedulers.client.zrem(schedulers.state.key("delayed"), f"repeat:{ID}:{late_ms}")


def _fetch(schedulers: Schedulers, late_ms: int) -> None:
    _lead_astray(schedulers, late_ms)
    schedulers.client.lpush(schedulers.state.key("active"), f"repeat:{ID}:{late_ms}")


@pytest.mark.parametrize(
    ("damage", "goes_on", "told"),
    [
        (_finish, "next", "had no successor"),
        (_remove, "late", "was removed"),
        (_lead_astray, "next", "was in no list of the queue"),
        (_fetch, "next", ""),
    ],
)
def test_a_broken_chain_is_repaired_and_told_of(
    define: Define,
    schedulers: Schedulers,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[Schedulers, int], None],
    goes_on: str,
    told: str,
) -> None:
    """P51: the package's chain stops for ever, with an event that nobody hears."""
    follow(scheduled(define, Every(3600)))
    late_ms = schedulers.make_late(ID, 600)
    damage(schedulers, late_ms)

    with caplog.at_level(logging.WARNING, "kumiko_django.worker"):
        assert repair() == 1
        repaired = schedulers.snapshot()
        assert repair() == 0

    expected = late_ms if goes_on == "late" else (now_ms() // HOUR_MS + 1) * HOUR_MS
    assert schedulers.next_ms(ID) == expected
    place = schedulers.state.wait if goes_on == "late" else schedulers.state.delayed
    assert place == [schedulers.tick(ID)]
    assert schedulers.snapshot() == repaired
    assert (told in caplog.text) if told else not caplog.text
    assert not told or f"The schedule of {NAME} was broken" in caplog.text


def test_a_planned_tick_that_was_removed_comes_back(define: Define, schedulers: Schedulers) -> None:
    """P51: at its own time."""
    follow(scheduled(define, Cron("@yearly")))
    planned_ms = schedulers.next_ms(ID)
    _remove(schedulers, planned_ms)

    assert repair() == 1

    assert schedulers.state.delayed == [f"repeat:{ID}:{planned_ms}"]


def test_what_is_whole_or_not_ours_is_left_alone(
    define: Define, schedulers: Schedulers, redis_url: str, queue_prefix: str
) -> None:
    """P48, P51: planned, due, or another client's."""

    async def upsert(queue: Any) -> Any:
        await queue.upsertJobScheduler("theirs", {"every": HOUR_MS}, NAME, {}, RETENTION)

    with_queue(redis_url, f"{queue_prefix}-worker", upsert)
    schedulers.client.delete(schedulers.state.key(schedulers.tick("theirs")))
    follow(
        scheduled(define, Every(3600)),
        JobDefinition(handler=sweep, name="b", app_label="testapp", tenant="system",
                      trigger=Cron("@yearly")),
    )  # fmt: skip
    schedulers.make_late(ID, 60)
    before = schedulers.snapshot()

    assert repair() == 0
    assert schedulers.snapshot() == before


def test_a_record_that_cannot_be_read_stops_nothing(
    define: Define, schedulers: Schedulers, caplog: pytest.LogCaptureFixture
) -> None:
    """P51: a newer version may write what this one does not understand."""
    follow(
        scheduled(define, Every(3600)),
        JobDefinition(handler=sweep, name="b", app_label="testapp", tenant="system",
                      trigger=Cron("@yearly")),
    )  # fmt: skip
    other = "scheduler-testapp-job-b"
    for scheduler in (ID, other):
        schedulers.client.hset(
            schedulers.state.key(schedulers.tick(scheduler)), "finishedOn", str(now_ms())
        )
        schedulers.client.zrem(schedulers.state.key("delayed"), schedulers.tick(scheduler))
    schedulers.client.hset(schedulers.state.key(f"repeat:{ID}"), "every", "soon")

    assert repair() == 1
    assert f"The schedule {ID} of lane worker cannot be read" in caplog.text
    assert schedulers.state.delayed == [schedulers.tick(other)]


def test_a_schedule_that_is_lost_with_redis_is_written_again(
    define: Define, host: StartHost, schedulers: Schedulers
) -> None:
    """P48, P51: every process of the version that holds looks after its records."""
    scheduled(define, Cron("@yearly"))
    host("worker")
    wait_until(schedulers.ids, description="it is scheduled")

    for key in schedulers.client.scan_iter(match=f"{schedulers.state.base}:*", count=1000):
        schedulers.client.delete(key)

    wait_until(schedulers.ids, description="it is scheduled again")
    assert schedulers.state.delayed == [schedulers.tick(ID)]


class BrokenChannel:
    """The connection fails when a script is to be run."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    def execute(self, *command: Any) -> Any:
        return self._channel.execute(*command)

    async def run(self, *arguments: Any) -> Any:
        raise RedisConnectionError("cut off")


async def test_a_run_does_not_fail_because_the_next_tick_cannot_be_made(
    define: Define, schedulers: Schedulers
) -> None:
    """P51: the watchdog makes it; the job is handed on meanwhile."""
    follow(scheduled(define, Every(3600)))
    late_ms = schedulers.make_late(ID, 1)
    tick = f"repeat:{ID}:{late_ms}"
    async with new_async_client(current_address(), patient=True) as client:
        broken: Any = BrokenChannel(Channel(client))
        fields, missed = await Ticks(broken, "worker", 2000).advance(
            schedulers.state.job(tick).raw, tick
        )

    assert not missed
    assert "rjk" not in fields  # the package must not try it its way
    assert schedulers.next_ms(ID) == late_ms
    _fetch(schedulers, late_ms)
    assert repair() == 1
    assert schedulers.next_ms(ID) > late_ms


async def test_a_tick_that_many_have_fetched_makes_one_successor(
    define: Define, schedulers: Schedulers
) -> None:
    """P51, user-needs 33: a redelivery, the watchdog and a second worker do nothing twice."""
    follow(scheduled(define, Every(3600)))
    late_ms = schedulers.make_late(ID, 1)
    tick = f"repeat:{ID}:{late_ms}"
    raw = schedulers.state.job(tick).raw
    async with new_async_client(current_address(), patient=True) as client:
        ticks = [Ticks(Channel(client), "worker", 2000) for _ in range(20)]
        await asyncio.gather(*(each.advance(raw, tick) for each in ticks))

    assert schedulers.record(ID)["ic"] == "3"
    assert schedulers.state.delayed == [tick, schedulers.tick(ID)]


async def test_a_time_that_has_run_already_is_passed_over(
    define: Define, schedulers: Schedulers
) -> None:
    """P51: clocks differ; the package's chain ends at such a tick."""
    follow(scheduled(define, Every(3600)))
    planned_ms = schedulers.next_ms(ID)
    late_ms = schedulers.make_late(ID, 1)
    ran = schedulers.state.key(f"repeat:{ID}:{planned_ms}")
    schedulers.client.hset(ran, mapping={"name": NAME, "finishedOn": "1"})
    tick = f"repeat:{ID}:{late_ms}"
    async with new_async_client(current_address(), patient=True) as client:
        await Ticks(Channel(client), "worker", 2000).advance(schedulers.state.job(tick).raw, tick)

    assert schedulers.next_ms(ID) == planned_ms + HOUR_MS
