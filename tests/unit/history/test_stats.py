"""The hourly roll-up of runs (design 6, ``JobStat``)."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import Any

import pytest
from django.db import DEFAULT_DB_ALIAS, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from kumiko_django.history import stats
from kumiko_django.history.models import JobRun, JobStat, RunStatus
from kumiko_django.history.rollup import RollUp
from kumiko_django.history.stats import BUCKET_BOUNDS_MS, HOUR
from tests.unit.history.admin_rows import make_run, unsaved_run

pytestmark = pytest.mark.django_db

DB = DEFAULT_DB_ALIAS
NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)


def at(minutes: float, hour: dt.datetime = NOON) -> dt.datetime:
    return hour + dt.timedelta(minutes=minutes)


def always() -> bool:
    return True


def totals(**filters: Any) -> dict[str, int]:
    """Runs on record for each status, over all groups."""
    counted: Counter[str] = Counter()
    for status, count in JobStat.objects.filter(**filters).values_list("status", "count"):
        counted[status] += count
    return dict(counted)


def bucket(milliseconds: int) -> int:
    return sum(bound < milliseconds for bound in BUCKET_BOUNDS_MS)


# ----------------------------------------------------------------------------------- one hour


def test_an_hour_is_counted_by_job_lane_tenant_and_outcome() -> None:
    groups = [("a", "worker", "acme", "completed"), ("a", "worker", "acme", "failed"),
              ("a", "worker", "bolt", "completed"), ("a", "api", "acme", "completed"),
              ("b", "worker", "acme", "completed")]  # fmt: skip
    for number, (job, lane, tenant, status) in enumerate(groups, start=1):
        for _ in range(number):
            make_run(
                started_at=at(5), job_name=job, lane=lane, tenant_id=tenant, status=status,
                duration_ms=10 * number, wait_ms=number,
            )  # fmt: skip

    assert stats.settle(DB, NOON, at(90)) is True

    rows = JobStat.objects.filter(hour=NOON)
    found = {(r.job_name, r.lane, r.tenant_id, r.status): r for r in rows}
    assert set(found) == set(groups)
    for number, group in enumerate(groups, start=1):
        row = found[group]
        assert row.count == number
        assert row.duration_ms_sum == 10 * number * number
        assert row.wait_ms_sum == number * number
        assert row.durations[bucket(10 * number)] == sum(row.durations) == number
        assert row.rolled_up_at == at(90)


def test_every_bucket_takes_what_is_up_to_its_bound() -> None:
    lengths = [length for bound in BUCKET_BOUNDS_MS for length in (bound, bound + 1)]
    JobRun.objects.bulk_create(
        unsaved_run(started_at=at(1), duration_ms=length, wait_ms=length)
        for length in (0, *lengths)
    )

    stats.roll_up(DB, NOON, at(2))

    (row,) = JobStat.objects.all()
    expected = [0] * (len(BUCKET_BOUNDS_MS) + 1)
    for length in (0, *lengths):
        expected[bucket(length)] += 1
    assert row.durations == row.waits == expected
    assert row.durations[0] == 2, "0 ms and 1 ms"
    assert row.durations[-1] == 1, "more than an hour"
    assert row.duration_ms_sum == sum(lengths)


def test_bounds_rise_from_a_millisecond_to_an_hour() -> None:
    assert list(BUCKET_BOUNDS_MS) == sorted(set(BUCKET_BOUNDS_MS))
    assert (BUCKET_BOUNDS_MS[0], BUCKET_BOUNDS_MS[-1]) == (1, 3_600_000)


def test_runs_without_duration_or_wait_are_counted_and_in_no_bucket() -> None:
    """A run that has not ended has no duration, a later start no wait."""
    make_run(started_at=at(1), status=RunStatus.RUNNING, wait_ms=None)

    stats.roll_up(DB, NOON, at(2))

    row = JobStat.objects.get()
    assert (row.status, row.count, row.duration_ms_sum, row.wait_ms_sum) == ("running", 1, 0, 0)
    assert sum(row.durations) == sum(row.waits) == 0


def test_a_clock_that_was_set_back_breaks_nothing() -> None:
    make_run(started_at=at(1), wait_ms=-500)

    stats.roll_up(DB, NOON, at(2))

    row = JobStat.objects.get()
    assert (row.wait_ms_sum, row.waits[0]) == (-500, 1)


def test_a_run_belongs_to_the_hour_of_its_start() -> None:
    """Not to that of its end; the hour is that of UTC, whatever ``TIME_ZONE`` says."""
    edges = [at(-0.0001), NOON, at(59.9999), at(60)]
    for moment in edges:
        make_run(started_at=moment, finished_at=at(600))

    for hour in (NOON - HOUR, NOON, NOON + HOUR):
        stats.roll_up(DB, hour, at(700))

    assert dict(JobStat.objects.order_by("hour").values_list("hour", "count")) == {
        NOON - HOUR: 1, NOON: 2, NOON + HOUR: 1,
    }  # fmt: skip
    assert [stats.hour_of(run.id) for run in JobRun.objects.order_by("id")] == [
        NOON - HOUR, NOON, NOON, NOON + HOUR,
    ]  # fmt: skip


def test_rolling_up_again_changes_nothing() -> None:
    for number in range(5):
        make_run(started_at=at(number), status=["completed", "failed"][number % 2])
    stats.roll_up(DB, NOON, at(10))
    columns = ("hour", "job_name", "status", "count", "durations", "waits")
    before = list(JobStat.objects.values(*columns))

    assert stats.settle(DB, NOON, at(11)) is False
    assert stats.roll_up(DB, NOON, at(12)) is True

    assert list(JobStat.objects.values(*columns)) == before


def test_runs_that_go_on_are_followed() -> None:
    run = make_run(started_at=at(1), status=RunStatus.RUNNING)
    stats.settle(DB, NOON, at(2))
    assert totals() == {"running": 1}

    JobRun.objects.filter(id=run.id).update(status=RunStatus.COMPLETED, duration_ms=7)
    assert stats.settle(DB, NOON, at(3)) is True
    assert totals() == {"completed": 1}

    JobRun.objects.all().delete()
    assert stats.settle(DB, NOON, at(4)) is True
    assert totals() == {}


def test_a_closed_hour_that_has_lost_runs_stays() -> None:
    """They have been pruned: the statistics outlive the runs."""
    for number in range(4):
        make_run(started_at=at(number))
    late = make_run(started_at=at(5), status=RunStatus.DEFERRED)
    stats.settle(DB, NOON, at(200))
    JobRun.objects.exclude(id=late.id).delete()
    JobRun.objects.filter(id=late.id).update(status=RunStatus.COMPLETED)

    assert stats.settle(DB, NOON, at(300)) is False
    assert stats.roll_up(DB, NOON, at(300)) is False

    assert totals() == {"completed": 4, "deferred": 1}


# ---------------------------------------------------------------------------------- the passes


def test_a_pass_computes_the_open_hours_and_only_where_something_changed() -> None:
    make_run(started_at=at(-30))
    make_run(started_at=at(10))
    roll_up = RollUp()

    assert roll_up.run(at(11), always) == 2
    assert roll_up.run(at(12), always) == 0
    make_run(started_at=at(12))
    assert roll_up.run(at(13), always) == 1

    assert totals(hour=NOON) == {"completed": 2}
    assert totals(hour=NOON - HOUR) == {"completed": 1}


def test_an_older_hour_is_computed_again_when_its_runs_end() -> None:
    run = make_run(started_at=at(1), status=RunStatus.DEFERRED)
    roll_up = RollUp()
    roll_up.run(at(200), always)
    assert totals() == {"deferred": 1}
    # Past the day in which closed hours are looked at anyway.
    for days in (2, 3):
        assert roll_up.run(at(0, NOON + days * DAY), always) == 0

    JobRun.objects.filter(id=run.id).update(status=RunStatus.COMPLETED)

    assert roll_up.run(at(0, NOON + 4 * DAY), always) == 1
    assert totals() == {"completed": 1}


def test_hours_in_which_no_worker_was_alive_are_caught_up_oldest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that was rolled up while it was open, too: what came after that is not on record."""
    hours = [NOON + number * HOUR for number in (0, 3, 4, 90)]
    for hour in hours:
        make_run(started_at=at(20, hour))
    stats.settle(DB, NOON, at(30))
    make_run(started_at=at(40))
    roll_up, now = RollUp(), NOON + 200 * HOUR
    monkeypatch.setattr("kumiko_django.history.rollup.SECONDS_FOR_EACH", 0)  # one hour a pass

    found: list[dt.datetime] = []
    for _ in hours:
        assert roll_up.run(now, always) == 1
        (row,) = JobStat.objects.filter(rolled_up_at=now).exclude(hour__in=found)
        found.append(row.hour)
    assert roll_up.run(now, always) == 0

    assert found == hours
    assert totals(hour=NOON) == {"completed": 2}
    assert JobStat.objects.count() == 4


def test_a_new_owner_finds_what_the_last_one_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kumiko_django.history.rollup.SECONDS_FOR_EACH", 60)  # a slow machine
    for number in range(6):
        make_run(started_at=at(20, NOON + number * HOUR))
    now = NOON + 50 * HOUR
    asked = iter([True, True, True, True, False])

    assert RollUp().run(now, lambda: next(asked)) == 2, "two open hours are empty"
    assert RollUp().run(now, always) == 4

    assert JobStat.objects.values("hour").distinct().count() == 6


def test_records_that_come_late_are_found_within_a_day_of_passes() -> None:
    """Redis or the database was away for hours, and the runs are written when it is back."""
    make_run(started_at=at(1))
    roll_up, now = RollUp(), at(200)
    roll_up.run(now, always)
    make_run(started_at=at(2))

    assert sum(roll_up.run(now, always) for _ in range(24)) == 1

    assert totals() == {"completed": 2}


def test_hours_without_runs_cost_nothing() -> None:
    """Two runs, ten years apart."""
    make_run(started_at=at(0))
    make_run(started_at=at(0, NOON + 3_650 * DAY))

    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert RollUp().run(NOON + 3_651 * DAY, always) == 2

    assert len(queries) < 60


# ---------------------------------------------------------------------------------- the readers


def test_the_last_hours_and_one_job_over_time_are_read_by_an_index() -> None:
    now = stats.hour_at(timezone.now())
    JobStat.objects.bulk_create(
        JobStat(
            hour=now - number * HOUR, job_name=f"job-{job}", lane="worker", tenant_id="acme",
            status="completed", count=1, rolled_up_at=now,
        )
        for number in range(500) for job in range(10)
    )  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    last_hours = JobStat.objects.filter(hour__gte=now - 3 * HOUR).order_by()
    one_job = JobStat.objects.filter(job_name="job-1", hour__gte=now - 100 * HOUR).order_by()

    assert "kumiko_jobstat_one_row_a_group" in last_hours.explain() or "sqlite_autoindex" in (
        last_hours.explain()
    )
    assert "kumiko_jobstat_job" in one_job.explain()
