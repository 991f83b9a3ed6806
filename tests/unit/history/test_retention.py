"""Deleting old runs (design 6 and issue 3: ended ones only, by age, their logs with them)."""

from __future__ import annotations

import datetime as dt
import threading
from collections import Counter
from typing import Any

import pytest
from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.db.models.signals import pre_delete
from django.test.utils import CaptureQueriesContext

from kumiko_django.history import retention, stats
from kumiko_django.history.models import JobRun, JobRunLog, JobStat, RunStatus
from kumiko_django.history.retention import Pruned
from tests.helpers.waiting import wait_until
from tests.unit.history.admin_rows import make_log, make_run, unsaved_run

NOW = dt.datetime(2026, 3, 31, 12, 30, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
AGE = 30 * DAY
DB = DEFAULT_DB_ALIAS


def ago(days: float) -> dt.datetime:
    return NOW - dt.timedelta(days=days)


def old_runs(count: int, days: float = 40, **values: Any) -> None:
    JobRun.objects.bulk_create(
        unsaved_run(started_at=ago(days) + dt.timedelta(seconds=number), **values)
        for number in range(count)
    )


def left() -> Counter[str]:
    return Counter(JobRun.objects.values_list("queue_job_id", flat=True))


@pytest.mark.django_db
@pytest.mark.parametrize("status", RunStatus.values)
def test_only_runs_that_have_ended_are_deleted(status: str) -> None:
    make_run(started_at=ago(400), status=status)

    done = retention.prune(AGE, now=NOW)

    stays = status in ("running", "deferred")
    assert (done.runs, JobRun.objects.count()) == ((0, 1) if stays else (1, 0))


@pytest.mark.django_db
def test_the_age_counts_from_the_end() -> None:
    """A run that was deferred for a month and ended yesterday is a day old."""
    rows: dict[str, dict[str, Any]] = {
        "old": {"started_at": ago(31), "finished_at": ago(30.01)},
        "just not": {"started_at": ago(31), "finished_at": ago(30)},
        "began long ago": {"started_at": ago(90), "finished_at": ago(1)},
        "no end on record, old": {"started_at": ago(31), "finished_at": None},
        "no end on record": {"started_at": ago(29), "finished_at": None},
        "new": {"started_at": ago(1), "finished_at": ago(1)},
    }
    for name, times in rows.items():
        make_run(queue_job_id=name, **times)

    done = retention.prune(AGE, now=NOW)

    assert set(left()) == {"just not", "began long ago", "no end on record", "new"}
    assert (done.runs, done.finished) == (2, True)


@pytest.mark.django_db
def test_logs_go_with_their_runs_and_others_stay() -> None:
    """P80."""
    old, new = make_run(started_at=ago(40)), make_run(started_at=ago(2))
    make_log(old, 7)
    make_log(new, 3)

    done = retention.prune(AGE, now=NOW)

    assert (done.runs, done.logs) == (1, 7)
    assert set(JobRunLog.objects.values_list("run_id", flat=True)) == {new.id}
    assert JobRunLog.objects.count() == 3


@pytest.mark.django_db
def test_whatever_the_age_runs_of_open_hours_stay() -> None:
    """Their hours are not rolled up finally."""
    for hours in (0.1, 1, 1.4, 1.6, 5):
        make_run(started_at=NOW - dt.timedelta(hours=hours), queue_job_id=str(hours))

    retention.prune(dt.timedelta(seconds=1), now=NOW)

    assert set(left()) == {"0.1", "1", "1.4"}


@pytest.mark.django_db
def test_an_hour_is_rolled_up_before_its_first_run_is_deleted() -> None:
    """Also where no worker has ever done so; and what it was stays on record."""
    old_runs(5)
    old_runs(3, status=RunStatus.FAILED)
    old_runs(2, days=40.5)

    retention.prune(AGE, now=NOW, batch_size=2)
    retention.prune(AGE, now=NOW)
    stats.settle(DB, stats.hour_at(ago(40)), NOW)

    recorded = JobStat.objects.order_by("hour", "status").values_list("status", "count")
    assert list(recorded) == [("completed", 2), ("completed", 5), ("failed", 3)]
    assert not JobRun.objects.exists()


@pytest.mark.django_db
def test_pruning_half_an_hour_leaves_its_numbers() -> None:
    """The age ends in the middle of an hour; the rest of it goes the next night."""
    hour = stats.hour_at(ago(30))
    for minute in (5, 10, 50, 55):
        make_run(started_at=hour + dt.timedelta(minutes=minute))

    assert retention.prune(AGE, now=NOW).runs == 2
    stats.settle(DB, hour, NOW)
    assert retention.prune(AGE, now=NOW + DAY).runs == 2

    assert JobStat.objects.get().count == 4


@pytest.mark.django_db
def test_batches_are_as_large_as_asked_and_told_one_by_one() -> None:
    old_runs(25)
    old_runs(1, days=39)
    told: list[int] = []

    with CaptureQueriesContext(connection) as queries:
        done = retention.prune(
            AGE, now=NOW, batch_size=10, progress=lambda done: told.append(done.runs)
        )

    assert told == [10, 20, 25, 26]
    assert (done.runs, done.finished) == (26, True)
    deletions = [q["sql"] for q in queries if q["sql"].startswith('DELETE FROM "kumiko_jobrun"')]
    assert len(deletions) == 4


@pytest.mark.django_db
def test_it_stops_when_asked_and_goes_on_the_next_time() -> None:
    old_runs(25)
    answers = iter([True, False])

    done = retention.prune(AGE, now=NOW, batch_size=10, go_on=lambda seconds: next(answers))

    assert (done.runs, done.finished, JobRun.objects.count()) == (20, False, 5)
    assert retention.prune(AGE, now=NOW) == Pruned(runs=5, logs=0, finished=True)


@pytest.mark.django_db
def test_survivors_hold_nothing_up() -> None:
    """Runs that stay lie between those that go, more of them than a batch takes."""
    old_runs(30, status=RunStatus.DEFERRED)
    old_runs(7)
    old_runs(30, days=39.9, status=RunStatus.DEFERRED)
    old_runs(7, days=39.8)

    done = retention.prune(AGE, now=NOW, batch_size=5)

    assert (done.runs, done.finished) == (14, True)
    assert JobRun.objects.count() == 60


@pytest.mark.django_db
def test_counting_tells_what_pruning_does() -> None:
    old_runs(4)
    old_runs(2, status=RunStatus.RUNNING)
    old_runs(3, days=3)

    assert retention.count(AGE, now=NOW) == 4
    assert JobRun.objects.count() == 9
    assert retention.prune(AGE, now=NOW).runs == 4
    assert retention.oldest_start() == JobRun.objects.earliest("id").started_at


@pytest.mark.django_db
def test_an_empty_history_is_pruned_at_once() -> None:
    assert retention.prune(AGE, now=NOW) == Pruned(finished=True)
    assert retention.oldest_start() is None


@pytest.mark.django_db
def test_it_walks_by_the_primary_key() -> None:
    """The first batch does not look through what is not old, and no index is needed."""
    old_runs(3_000, days=1)
    old_runs(10)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    runs = retention._prunable(DB, retention._NONE, retention._limit(NOW - AGE, NOW), NOW - AGE)

    plan = runs[:1_000].explain()

    assert "kumiko_jobrun_pkey" in plan or "sqlite_autoindex_kumiko_jobrun_1" in plan, plan


@pytest.mark.django_db(transaction=True)
def test_other_writers_are_not_held_up_between_batches_nor_within_on_postgresql() -> None:
    """Short locks: a run is written while old ones are being deleted."""
    old_runs(40)
    inserted = threading.Event()
    inside: list[bool] = []

    def insert() -> None:
        try:
            make_run(started_at=NOW)
        finally:
            connections.close_all()
        inserted.set()

    def in_the_middle(**kwargs: Any) -> None:
        """Called within a batch's transaction, once its first rows have been locked."""
        if connection.vendor == "postgresql" and not inside:
            threading.Thread(target=insert, daemon=True).start()
            inside.append(inserted.wait(10))

    def between(seconds: float) -> bool:
        if connection.vendor != "postgresql" and not inside:
            threading.Thread(target=insert, daemon=True).start()
            wait_until(inserted.is_set, description="the insert is not blocked", timeout=5)
            inside.append(True)
        return True

    pre_delete.connect(in_the_middle, sender=JobRun)
    try:
        done = retention.prune(AGE, now=NOW, batch_size=10, go_on=between)
    finally:
        pre_delete.disconnect(in_the_middle, sender=JobRun)

    assert inside == [True]
    assert done.runs == 40
    assert JobRun.objects.count() == 1
