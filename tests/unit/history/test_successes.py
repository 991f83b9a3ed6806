"""When jobs were last completed, from the hourly numbers and the latest runs (P84)."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import DEFAULT_DB_ALIAS, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from kumiko_django.history.models import JobRun
from kumiko_django.history.stats import hour_at, roll_up
from kumiko_django.history.successes import last_successes
from tests.unit.history.admin_rows import make_run

pytestmark = pytest.mark.django_db

HOUR = dt.timedelta(hours=1)


def rolled_up(run: JobRun) -> JobRun:
    roll_up(DEFAULT_DB_ALIAS, hour_at(run.started_at), timezone.now())
    return run


def ago(hours: float) -> dt.datetime:
    return timezone.now() - hours * HOUR


def test_the_last_completed_run_of_each_job() -> None:
    """P84: whatever has failed since; old ones by the hourly numbers, new ones without them."""
    rolled_up(make_run(job_name="old", started_at=ago(100)))
    old = rolled_up(make_run(job_name="old", started_at=ago(50)))
    make_run(job_name="old", started_at=ago(1), status="failed")
    new = make_run(job_name="new", started_at=ago(0.1))
    rolled_up(make_run(job_name="both", started_at=ago(30)))
    both = make_run(job_name="both", started_at=ago(0.2))
    make_run(job_name="fails", started_at=ago(1), status="failed")
    found = last_successes(["old", "new", "both", "fails", "never"])
    assert found == {
        "old": old.finished_at, "new": new.finished_at, "both": both.finished_at,
    }  # fmt: skip


def test_one_whose_run_is_gone_is_known_by_its_hour() -> None:
    run = rolled_up(make_run(job_name="old", started_at=ago(50)))
    JobRun.objects.all().delete()
    assert last_successes(["old"]) == {"old": hour_at(run.started_at)}


def test_it_asks_once_and_once_for_each_job() -> None:
    for number in range(20):
        make_run(job_name=f"job-{number}")
    with CaptureQueriesContext(connection) as queries:
        assert len(last_successes([f"job-{number}" for number in range(20)])) == 20
    assert len(queries) == 21
    assert last_successes([]) == {}
