"""Schedulers in Redis: BullMQ's own records, written only on change, pruned when orphaned."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pytest_django import Settings

from kumiko_django import Backoff, Cron, Every, JobDefinition, Manual
from kumiko_django.broker.schedulers import milliseconds, moment
from kumiko_django.worker.scheduler import LaneSchedules
from tests.helpers.fixtures import QueueStateFactory
from tests.integration.worker.host_thread import RETENTION, Define
from tests.integration.worker.schedulers import (
    HOUR_MS,
    Schedulers,
    follow,
    now_ms,
    with_queue,
)

ID = "scheduler-testapp-job-sweep"


def sweep(payload: Any, ctx: Any) -> None: ...


@pytest.fixture
def schedulers(queue_state: QueueStateFactory) -> Schedulers:
    return Schedulers(queue_state("worker"))


def hourly(define: Define, **options: Any) -> JobDefinition:
    given = {"trigger": Cron("0 * * * *", tz="Europe/Berlin"), "tenant": "system", **options}
    return define(sweep, **given)


def other(trigger: Any, name: str = "sweep", **options: Any) -> JobDefinition:
    """The same job in another version of the application."""
    given = {"app_label": "testapp", "name": name, "tenant": "system", **options}
    return JobDefinition(handler=sweep, trigger=trigger, **given)


# --------------------------------------------------------------------------- what stands in Redis


def test_a_record_is_bullmqs_own(
    define: Define, schedulers: Schedulers, redis_url: str, queue_prefix: str
) -> None:
    """B002, B095, B098, P49: any client reads id, name, pattern, zone and template."""
    definition = hourly(define, retries=2, backoff=Backoff.fixed(7), priority="low")
    follow(definition)

    async def read(queue: Any) -> Any:
        return await queue.getJobSchedulers()

    (found,) = with_queue(redis_url, f"{queue_prefix}-worker", read)

    assert found["key"] == ID
    assert found["name"] == "testapp:job:sweep"
    assert (found["pattern"], found["tz"]) == ("0 * * * *", "Europe/Berlin")
    assert found["template"]["data"] == {"_v": 1}
    assert found["template"]["opts"]["attempts"] == 3
    assert found["template"]["opts"]["backoff"] == {"type": "fixed", "delay": 7000}
    assert found["next"] == milliseconds(definition.trigger.next_after(moment(now_ms())))  # type: ignore[union-attr]
    assert schedulers.mark(ID)["catchUp"] == "one"


def test_a_tick_has_bullmqs_id_our_options_and_no_origin(
    define: Define, schedulers: Schedulers, settings: Settings
) -> None:
    """B081, B093, B096, B100, B171, P50: three parts, retention, empty data, nobody behind it."""
    settings.KUMIKO = {**settings.KUMIKO, "COMPLETED_AGE": 111, "FAILED_AGE": 222}
    follow(hourly(define, retries=2, backoff=Backoff.fixed(7)))

    (tick,) = schedulers.state.jobs("delayed")

    assert tick.id == f"repeat:{ID}:{schedulers.next_ms(ID)}"
    assert len(tick.id.split(":")) == 3
    assert tick.name == "testapp:job:sweep"
    assert tick.data == {"_v": 1}
    assert (tick.opts["removeOnComplete"], tick.opts["removeOnFail"]) == (
        {"age": 111},
        {"age": 222},
    )
    assert (tick.opts["attempts"], tick.opts["backoff"]["delay"]) == (3, 7000)
    assert tick.raw["rjk"] == tick.opts["repeatJobKey"] == ID
    # What Node's worker and the package go on from.
    assert tick.opts["repeat"] == {"count": 1, "pattern": "0 * * * *", "tz": "Europe/Berlin"}
    assert tick.opts["prevMillis"] == schedulers.next_ms(ID)
    assert schedulers.state.due_at(tick.id) * 1000 == schedulers.next_ms(ID)


def test_an_interval_is_bullmqs_every(define: Define, schedulers: Schedulers) -> None:
    """B002, B098: in milliseconds; the first tick is the next multiple, not now."""
    follow(hourly(define, trigger=Every(3600)))

    assert schedulers.record(ID)["every"] == str(HOUR_MS)
    assert schedulers.next_ms(ID) == (now_ms() // HOUR_MS + 1) * HOUR_MS


def test_only_what_a_clock_starts_has_a_scheduler_and_only_in_its_lane(
    define: Define, schedulers: Schedulers, queue_state: QueueStateFactory
) -> None:
    """B002, B035, B099: a manual job has none; the other lane's are not this lane's business."""
    api = hourly(define, lane="api")
    manual = define(sweep, name="by-hand", trigger=Manual())

    LaneSchedules("worker", [api, manual]).follow()
    assert schedulers.ids() == []
    assert schedulers.snapshot() == {}
    LaneSchedules("api", [api, manual]).follow()
    assert Schedulers(queue_state("api")).ids() == [ID]
    assert schedulers.ids() == []


# ------------------------------------------------------------------------- written only on change


@pytest.mark.parametrize("state", ["planned", "due"])
def test_what_has_not_changed_is_not_written(
    define: Define, schedulers: Schedulers, state: str
) -> None:
    """B099, P54, bullmq-python 1.8: the package loses a due occurrence at each start."""
    definition = hourly(define)
    follow(definition)
    if state == "due":
        schedulers.make_late(ID, 60)
    before = schedulers.snapshot()

    for _ in range(3):
        follow(definition)

    assert schedulers.snapshot() == before


@pytest.mark.parametrize(
    "changed",
    [
        {"trigger": Cron("30 * * * *", tz="Europe/Berlin")},
        {"trigger": Cron("0 * * * *", tz="Asia/Tokyo")},
        {"trigger": Every(60)},
        {"trigger": Cron("0 * * * *", tz="Europe/Berlin"), "retries": 5},
        {"trigger": Cron("0 * * * *", tz="Europe/Berlin"), "catch_up": "all"},
    ],
)
def test_a_changed_definition_leaves_one_scheduler_with_the_new_content(
    define: Define, schedulers: Schedulers, changed: dict[str, Any]
) -> None:
    """B098, P54: pattern, zone, kind, options and rule; one tick, of the new one."""
    follow(hourly(define))
    definition = other(**changed)

    follow(definition)

    (tick,) = schedulers.state.delayed
    expected = milliseconds(definition.trigger.next_after(moment(now_ms())))  # type: ignore[union-attr]
    assert schedulers.ids() == [ID]
    assert tick == f"repeat:{ID}:{expected}"
    assert schedulers.record(ID).get("pattern") == getattr(definition.trigger, "pattern", None)
    assert schedulers.state.job(tick).opts["attempts"] == definition.attempts
    assert schedulers.mark(ID)["catchUp"] == definition.effective_catch_up
    assert schedulers.state.pending() == 1


def test_a_changed_definition_keeps_an_occurrence_that_is_due(
    define: Define, schedulers: Schedulers
) -> None:
    """P54, bullmq-python 1.8: it stays what it was; the ticks after it are of the new pattern."""
    follow(hourly(define))
    due_ms = schedulers.make_late(ID, 60)

    follow(other(Cron("30 5 * * *", tz="Europe/Berlin")))

    assert schedulers.state.delayed == [f"repeat:{ID}:{due_ms}"]
    assert schedulers.next_ms(ID) == due_ms
    assert schedulers.record(ID)["pattern"] == "30 5 * * *"


def test_a_scheduler_of_the_original_is_taken_over(
    define: Define, schedulers: Schedulers, redis_url: str, queue_prefix: str
) -> None:
    """B095, B098: the same id; its pattern, without a zone, was read in UTC by one client."""

    async def upsert(queue: Any) -> Any:
        return await queue.upsertJobScheduler(ID, {"pattern": "5 * * * *"}, "testapp:job:sweep")

    with_queue(redis_url, f"{queue_prefix}-worker", upsert)
    follow(hourly(define))

    assert schedulers.ids() == [ID]
    assert (schedulers.record(ID)["pattern"], schedulers.record(ID)["tz"]) == (
        "0 * * * *",
        "Europe/Berlin",
    )
    assert schedulers.state.delayed == [schedulers.tick(ID)]


def test_many_that_start_at_once_make_one_tick(define: Define, schedulers: Schedulers) -> None:
    """P54, user-needs 33: none of them needs a lock, and none overwrites another's."""
    definition = hourly(define)
    for change in (definition, other(Cron("30 * * * *", tz="Europe/Berlin"))):
        schedulers.client.delete(schedulers.state.key("kumiko-schedulers"))
        with ThreadPoolExecutor(20) as pool:
            list(pool.map(lambda one: follow(one), [change] * 20))

        assert schedulers.ids() == [ID]
        assert schedulers.state.delayed == [schedulers.tick(ID)]
        assert schedulers.state.pending() == 1


# ------------------------------------------------------------------------------- pruning, legacy


def test_orphans_of_ours_are_removed_and_others_left_alone(
    define: Define, schedulers: Schedulers, redis_url: str, queue_prefix: str
) -> None:
    """B101, P48, user-needs 30: removed, renamed, moved to the other lane, or started by hand."""
    follow(
        other(Cron("@daily"), "removed"),
        other(Cron("@daily"), "old-name"),
        other(Cron("@daily"), "moved"),
        other(Cron("@daily"), "by-hand-now"),
    )

    async def foreign(queue: Any) -> Any:
        await queue.upsertJobScheduler(
            "scheduler-of-node", {"pattern": "5 4 * * *"}, "x", {}, RETENTION
        )
        await queue.upsertJobScheduler("anything", {"every": HOUR_MS}, "y", {}, RETENTION)

    with_queue(redis_url, f"{queue_prefix}-worker", foreign)
    theirs = {name: schedulers.record(name) for name in ("scheduler-of-node", "anything")}
    # All processes of the old version have ended.
    schedulers.client.delete(schedulers.state.key("kumiko-schedulers"))

    follow(
        other(Cron("@daily"), "new-name"),
        other(Cron("@daily"), "moved", lane="api"),
        other(Manual(), "by-hand-now"),
    )

    assert set(schedulers.ids()) == {
        "scheduler-testapp-job-new-name", "scheduler-of-node", "anything",
    }  # fmt: skip
    assert {name: schedulers.record(name) for name in theirs} == theirs
    assert len(schedulers.state.jobs()) == 3
    assert not list(schedulers.client.scan_iter(match=f"{schedulers.state.base}:*removed*"))


@pytest.mark.parametrize(("is_known", "left"), [(True, 1), (False, 0)])
def test_a_due_occurrence_of_an_orphan_stays_if_its_job_is_known(
    define: Define, schedulers: Schedulers, is_known: bool, left: int
) -> None:
    """P48: a job that has become manual still runs what was due; one that is gone has nothing."""
    if is_known:
        define(sweep, trigger=Manual())
    follow(other(Cron("@daily")))
    schedulers.make_late(ID, 60)
    schedulers.client.delete(schedulers.state.key("kumiko-schedulers"))

    follow(other(Manual(), "another"))

    assert schedulers.ids() == []
    assert len(schedulers.state.delayed) == left


def test_ids_of_early_versions_of_the_original_are_cleaned_up(
    define: Define, schedulers: Schedulers
) -> None:
    """B096, B097: with colons, whose ticks a queue reads as repeatable jobs of the old kind."""
    legacy = "scheduler-testapp:job:sweep"
    key = schedulers.state.key(f"repeat:{legacy}")
    schedulers.client.zadd(schedulers.state.key("repeat"), {legacy: now_ms() + HOUR_MS})
    schedulers.client.hset(key, mapping={"name": "testapp:job:sweep", "pattern": "0 * * * *"})
    unknown = "scheduler-testapp:job:of-somebody-else"
    schedulers.client.zadd(schedulers.state.key("repeat"), {unknown: now_ms() + HOUR_MS})

    follow(hourly(define))

    assert set(schedulers.ids()) == {ID, unknown}
    assert not schedulers.client.exists(key)


# --------------------------------------------------------------------------------- rolling deploys


def test_in_a_rolling_deploy_the_version_that_came_last_holds(
    define: Define, schedulers: Schedulers
) -> None:
    """P48, P54, user-needs 30: old processes neither bring back nor remove nor change back."""
    old = (other(Cron("0 * * * *"), "kept"), other(Cron("@daily"), "dropped"))
    new = (other(Cron("30 * * * *"), "kept"), other(Cron("@daily"), "added"))
    names = {
        "kept": "scheduler-testapp-job-kept",
        "dropped": "scheduler-testapp-job-dropped",
        "added": "scheduler-testapp-job-added",
    }
    first = follow(*old)
    second = follow(*old)

    third = follow(*new)  # the first process of the new version
    after = schedulers.snapshot()
    assert set(schedulers.ids()) == {names["kept"], names["added"]}
    assert schedulers.record(names["kept"])["pattern"] == "30 * * * *"
    for process in (first, second, first):
        process.follow()
    restarted = follow(*old)  # while others of the old version are there
    restarted.follow()
    third.follow()
    assert schedulers.snapshot() == after

    # Rolled back: a process of the old version comes when none of it is there any more.
    key = schedulers.state.key("kumiko-schedulers")
    for field in schedulers.client.hkeys(key):
        if field.startswith("set:") and field != schedulers.client.hget(key, "owner"):
            schedulers.client.hset(key, field, "1")
    follow(*old)
    assert set(schedulers.ids()) == {names["kept"], names["dropped"]}
    assert schedulers.record(names["kept"])["pattern"] == "0 * * * *"
    back = schedulers.snapshot()
    third.follow()
    assert schedulers.snapshot() == back


def test_a_version_that_is_left_alone_takes_over(define: Define, schedulers: Schedulers) -> None:
    """P48: the new version came and went (a failed deploy); the old one is still there."""
    old, new = other(Cron("0 * * * *")), other(Cron("30 * * * *"))
    running = follow(old)
    follow(new)
    running.follow()
    assert schedulers.record(ID)["pattern"] == "30 * * * *"

    key = schedulers.state.key("kumiko-schedulers")
    owner = schedulers.client.hget(key, "owner")
    schedulers.client.hset(key, owner, str(now_ms() - HOUR_MS))
    running.follow()

    assert schedulers.record(ID)["pattern"] == "0 * * * *"


def test_sets_that_nobody_has_any_more_are_forgotten(
    define: Define, schedulers: Schedulers
) -> None:
    """design 6: nothing is kept for ever."""
    key = schedulers.state.key("kumiko-schedulers")
    schedulers.client.hset(key, mapping={"set:0123456789abcdef": str(now_ms() - 8 * 24 * HOUR_MS)})

    follow(hourly(define))

    fields = schedulers.client.hkeys(key)
    assert [field for field in fields if field.startswith("set:")] == [
        schedulers.client.hget(key, "owner")
    ]
    assert 0 < schedulers.client.pttl(key) <= 7 * 24 * HOUR_MS


def test_the_mark_is_no_hindrance_to_other_clients(
    define: Define, schedulers: Schedulers, redis_url: str, queue_prefix: str
) -> None:
    """B098: they may read, replace and remove; what they write is theirs, until we start again."""
    definition = hourly(define)
    follow(definition)
    queue = f"{queue_prefix}-worker"

    async def replace(client: Any) -> Any:
        return await client.upsertJobScheduler(ID, {"pattern": "7 * * * *"}, "testapp:job:sweep")

    async def remove(client: Any) -> Any:
        return await client.removeJobScheduler(ID)

    with_queue(redis_url, queue, replace)
    assert "kumiko" not in schedulers.record(ID)
    follow(definition)
    assert json.loads(schedulers.record(ID)["kumiko"])["v"] == 1
    assert with_queue(redis_url, queue, remove) == 0
    assert schedulers.state.pending() == 0
    follow(definition)
    assert schedulers.state.delayed == [schedulers.tick(ID)]
