"""The worker's housekeeping: who does it, when, and what it must never do."""

from __future__ import annotations

import datetime as dt
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import redis
from django.db import connection, connections
from pytest_django import Settings

from kumiko_django.broker.lease import Lease, housekeeping_key, read_note, write_note
from kumiko_django.history.models import JobRun, JobStat
from kumiko_django.worker import housekeeping
from kumiko_django.worker.housekeeping import (
    LAST_PRUNED,
    GoOn,
    Housekeeping,
    Task,
    default_tasks,
    last_night,
    prune_nightly,
)
from tests.helpers.fixtures import ConnectionCount, DatabaseAway
from tests.helpers.valkey import Valkey
from tests.helpers.waiting import wait_until
from tests.unit.history.admin_rows import make_run, unsaved_run

pytestmark = pytest.mark.django_db(transaction=True)

NOW = dt.datetime(2026, 3, 31, 12, 30, tzinfo=dt.UTC)
LEASE = 0.3
Keep = Callable[..., Housekeeping]


def always(seconds: float = 0.0) -> bool:
    return True


@pytest.fixture
def keep() -> Iterator[Keep]:
    """Open a housekeeping with the given tasks; it is closed at the end."""
    opened: list[Housekeeping] = []

    def start(*tasks: Task, now: dt.datetime = NOW, lease: float = LEASE) -> Housekeeping:
        house = Housekeeping(tasks, now=lambda: now, lease_seconds=lease)
        opened.append(house)
        house.open()
        return house

    yield start
    for house in opened:
        house.close()


class Counted:
    """A task that notes each pass."""

    def __init__(self) -> None:
        self.passes: list[dt.datetime] = []

    def __call__(self, now: dt.datetime, go_on: GoOn) -> None:
        self.passes.append(now)

    def task(self, name: str = "counted", interval: float = 0.02) -> Task:
        return Task(name, interval, self)


# --------------------------------------------------------------------------------------- who


def test_two_compete_and_one_does_it(keep: Keep) -> None:
    first, second = Counted(), Counted()
    house = keep(first.task())
    wait_until(lambda: first.passes, description="the first one works")
    keep(second.task())
    wait_until(lambda: len(first.passes) > 20, description="it goes on")
    assert not second.passes

    house.close()

    done = len(first.passes)
    wait_until(lambda: len(second.passes) > 5, description="the other one takes over")
    assert len(first.passes) == done
    assert second.passes[0] == NOW


def test_each_task_may_have_another_owner(keep: Keep) -> None:
    assert Lease("a", 30).keep()
    a, b = Counted(), Counted()
    keep(a.task("a"), b.task("b"))

    wait_until(lambda: len(b.passes) > 5, description="the free one is done")
    assert not a.passes


def test_a_dead_owners_task_is_taken_over(keep: Keep) -> None:
    """It has neither released its lease nor renewed it."""
    assert Lease("counted", LEASE).keep()
    task = Counted()
    keep(task.task())

    wait_until(lambda: task.passes, description="the lease has run out")


def test_a_long_pass_keeps_its_lease_and_stops_when_it_has_lost_it(
    keep: Keep, raw_redis: redis.Redis
) -> None:
    asked: list[bool] = []

    def run(now: dt.datetime, go_on: GoOn) -> None:
        while not asked or asked[-1]:
            asked.append(go_on(0.01))

    keep(Task("long", 60, run))
    rival = Lease("long", 30)
    began = time.monotonic()
    wait_until(lambda: time.monotonic() - began > 3 * LEASE, description="several leases long")
    assert not rival.keep()
    assert all(asked)

    raw_redis.set(housekeeping_key("long"), "another", px=30_000)

    wait_until(lambda: asked[-1] is False, description="it is told to stop")


# -------------------------------------------------------------------------------------- when


def test_a_heavy_pass_rests_for_many_times_its_duration(keep: Keep) -> None:
    """A pass bounds its own load: here to a third of the time."""
    passes: list[tuple[float, float]] = []

    def run(now: dt.datetime, go_on: GoOn) -> None:
        began = time.monotonic()
        go_on(0.1)
        passes.append((began, time.monotonic()))

    keep(Task("heavy", 0.01, run, rest=3.0))
    wait_until(lambda: len(passes) >= 3, description="three passes")

    for (began, ended), (next_began, _) in itertools.pairwise(passes):
        assert next_began - ended >= 3.0 * (ended - began) * 0.95


def test_the_tasks_of_a_worker() -> None:
    """The roll-up may take a twentieth of the time at most."""
    tasks = {task.name: task for task in default_tasks()}

    assert {"roll-up", "prune", "departed"} <= set(tasks)
    assert (tasks["roll-up"].interval, tasks["roll-up"].rest) == (60.0, 20.0)


@pytest.mark.parametrize(
    ("now", "night"),
    [
        ("2026-01-15T01:59:59", "2026-01-14T02:00:00"),
        ("2026-01-15T02:00:00", "2026-01-15T02:00:00"),
        ("2026-01-15T23:30:00", "2026-01-15T02:00:00"),
        ("2026-07-15T00:59:59", "2026-07-14T01:00:00"),
        ("2026-07-15T01:00:00", "2026-07-15T01:00:00"),
        ("2026-03-29T01:00:00", "2026-03-29T01:00:00"),
        ("2026-10-25T01:59:59", "2026-10-24T01:00:00"),
        ("2026-10-25T02:00:00", "2026-10-25T02:00:00"),
    ],
)
def test_night_is_at_three_by_the_time_zone_of_django(now: str, night: str) -> None:
    """Europe/Berlin, winter and summer, and the two days on which the clocks change."""
    moment = dt.datetime.fromisoformat(f"{now}+00:00")

    assert last_night(moment) == dt.datetime.fromisoformat(f"{night}+00:00")


def test_pruning_is_done_once_a_night(settings: Settings) -> None:
    settings.KUMIKO = {**settings.KUMIKO, "HISTORY_AGE": dt.timedelta(days=10)}
    before_three, after_three = NOW.replace(hour=0, minute=30), NOW.replace(hour=1, minute=30)

    def left(now: dt.datetime) -> int:
        make_run(started_at=NOW - dt.timedelta(days=20))
        prune_nightly(now, always)
        return JobRun.objects.count()

    assert left(before_three) == 0, "none is on record: as soon as a worker is alive"
    assert left(before_three + dt.timedelta(minutes=10)) == 1
    assert left(after_three) == 0, "the next night"
    assert left(after_three + dt.timedelta(minutes=10)) == 1
    assert left(after_three + dt.timedelta(hours=22)) == 2
    assert left(after_three + dt.timedelta(hours=30)) == 0, "a night was missed"


def test_pruning_that_was_broken_off_is_not_done() -> None:
    JobRun.objects.bulk_create(
        unsaved_run(started_at=NOW - dt.timedelta(days=40, seconds=n)) for n in range(1_500)
    )

    prune_nightly(NOW, lambda seconds=0.0: False)
    assert (JobRun.objects.count(), read_note(LAST_PRUNED)) == (500, None)

    prune_nightly(NOW, always)
    assert (JobRun.objects.count(), read_note(LAST_PRUNED)) == (0, NOW.isoformat())


def test_history_that_is_kept_for_ever_is_not_pruned(settings: Settings) -> None:
    settings.KUMIKO = {**settings.KUMIKO, "HISTORY_AGE": None}
    make_run(started_at=NOW - dt.timedelta(days=4_000))

    prune_nightly(NOW, always)

    assert JobRun.objects.count() == 1


def test_both_are_done_by_the_threads(keep: Keep, connection_count: ConnectionCount) -> None:
    connections.close_all()
    before = connection_count()
    make_run(started_at=NOW - dt.timedelta(minutes=5))
    make_run(started_at=NOW - dt.timedelta(days=40))
    write_note(LAST_PRUNED, (NOW - dt.timedelta(days=2)).isoformat(), 60)

    keep(*default_tasks())

    wait_until(lambda: JobStat.objects.count() == 2, description="both hours are rolled up")
    wait_until(lambda: JobRun.objects.count() == 1, description="the old run is gone")
    connections.close_all()
    wait_until(
        lambda: connection_count() == before, description="no connection is kept between passes"
    )


# ----------------------------------------------------------------------------- nothing is broken


def test_a_database_that_is_away_is_said_once_and_waited_for(
    keep: Keep,
    database_away: DatabaseAway,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = connections.settings["default"]["OPTIONS"]
    if connection.vendor == "sqlite":
        monkeypatch.setitem(options, "timeout", 0.05)
    tries: list[float] = []

    def run(now: dt.datetime, go_on: GoOn) -> None:
        tries.append(time.monotonic())
        JobStat.objects.filter(count=0).update(count=0)

    with caplog.at_level(logging.INFO, "kumiko_django.worker"):
        with database_away():
            keep(Task("write", 0.05, run))
            wait_until(lambda: len(tries) > 4, description="it is tried again and again")
        wait_until(lambda: "goes on" in caplog.text, description="it is noticed")
    told = [entry.getMessage() for entry in caplog.records]
    assert len(told) == 2, told
    assert told[0].startswith("Housekeeping (write) waits: ")
    assert told[1] == "Housekeeping (write) goes on"


def test_a_redis_that_is_away_is_said_once_and_waited_for(
    keep: Keep, own_valkey: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = Counted(), Counted()
    with caplog.at_level(logging.INFO, "kumiko_django.worker"):
        keep(first.task("first"), second.task("second"))
        wait_until(lambda: first.passes and second.passes, description="both work")
        own_valkey.stop()
        wait_until(lambda: "Housekeeping waits" in caplog.text, description="it is noticed")
        done = len(first.passes)
        own_valkey.start(empty=True)
        wait_until(lambda: len(first.passes) > done + 2, description="it goes on")
    told = [entry.getMessage() for entry in caplog.records]
    assert len(told) == 2, told
    assert told[0].startswith("Housekeeping waits: Redis at ")
    assert told[1] == "Housekeeping goes on"


def test_a_fault_is_logged_once_and_stops_nothing(
    keep: Keep, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[int] = []

    def run(now: dt.datetime, go_on: GoOn) -> None:
        tries.append(1)
        if len(tries) < 5:
            raise ValueError("ours")

    with caplog.at_level(logging.INFO, "kumiko_django.worker"):
        keep(Task("faulty", 0.02, run))
        wait_until(lambda: len(tries) > 6, description="it goes on")
    told = [(entry.levelname, entry.getMessage()) for entry in caplog.records]
    assert told == [
        ("ERROR", "Housekeeping (faulty) met a fault; it will try again"),
        ("INFO", "Housekeeping (faulty) goes on"),
    ]
    assert caplog.records[0].exc_info is not None


def test_a_stop_is_quick_and_releases_the_lease(keep: Keep) -> None:
    inside = threading.Event()

    def run(now: dt.datetime, go_on: GoOn) -> None:
        inside.set()
        while go_on(60):
            pass

    house = keep(Task("busy", 60, run), lease=30)
    assert inside.wait(5)
    began = time.monotonic()

    house.close()

    assert time.monotonic() - began < 0.5
    assert Lease("busy", 30).keep()


def test_a_task_that_hangs_holds_up_no_stop(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "STOP_SECONDS", 0.2)
    inside, release = threading.Event(), threading.Event()

    def run(now: dt.datetime, go_on: GoOn) -> None:
        inside.set()
        release.wait(30)

    house = keep(Task("hangs", 60, run), Task("hangs too", 60, run))
    assert inside.wait(5)
    began = time.monotonic()

    house.close()

    assert time.monotonic() - began < 0.6
    release.set()


def test_closed_before_it_was_opened_it_does_nothing() -> None:
    Housekeeping().close()
