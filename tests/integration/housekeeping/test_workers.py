"""Housekeeping by real workers."""

from __future__ import annotations

import datetime as dt
import time

from django.utils import timezone

from kumiko_django.broker.lease import read_note
from kumiko_django.history import stats
from kumiko_django.history.models import JobRun, JobRunLog, JobStat, RunStatus
from kumiko_django.worker.housekeeping import LAST_PRUNED
from tests.app.jobs import record
from tests.helpers.fixtures import RunJobsFactory
from tests.helpers.waiting import wait_until
from tests.unit.history.admin_rows import make_log, make_run, unsaved_run


def old_run(days: float = 40, **values: str) -> JobRun:
    return make_run(started_at=timezone.now() - dt.timedelta(days=days), **values)


def recorded_completions() -> int:
    rows = JobStat.objects.filter(status="completed", job_name="testapp:job:record")
    return sum(rows.values_list("count", flat=True))


def test_a_worker_prunes_once_a_night(runjobs: RunJobsFactory) -> None:
    """At once, since no night's pruning is on record; the next worker finds that it is done."""
    make_log(old_run(), 3)
    deferred, recent = old_run(status=RunStatus.DEFERRED), old_run(days=2)

    first = runjobs("worker")

    wait_until(lambda: JobRun.objects.count() == 2, description="the old run is gone")
    assert set(JobRun.objects.values_list("id", flat=True)) == {deferred.id, recent.id}
    assert not JobRunLog.objects.exists()
    first.wait_output(r"pruned the history: 1 runs, 3 log lines")
    wait_until(lambda: read_note(LAST_PRUNED), description="it is on record")
    first.terminate()
    assert first.wait() == 0

    left = old_run(days=50)
    JobStat.objects.all().delete()
    second = runjobs("worker")
    wait_until(lambda: recorded_completions() == 2, description="the second one rolls up")
    second.terminate()
    assert second.wait() == 0
    assert JobRun.objects.filter(id=left.id).exists()


def test_another_worker_takes_over_from_a_killed_one(runjobs: RunJobsFactory) -> None:
    """The first one holds the lease of the roll-up; nobody else rolls up while it lives."""
    make_run(started_at=timezone.now() - dt.timedelta(hours=5))
    first = runjobs("worker")
    wait_until(lambda: recorded_completions() == 1, description="the first one rolls up")
    second = runjobs("worker")
    job_id = record.dispatch({"key": "a"}, tenant_id="acme").job_id
    wait_until(
        lambda: JobRun.objects.filter(queue_job_id=job_id, status="completed").exists(),
        description="it ran",
    )
    assert recorded_completions() == 1

    first.kill()

    wait_until(lambda: recorded_completions() == 2, description="taken over", timeout=15)
    assert second.running


def test_a_worker_that_is_asked_to_stop_does_not_wait_for_its_housekeeping(
    runjobs: RunJobsFactory,
) -> None:
    """A stop in the middle of pruning: whole batches, and the worker is gone in time."""
    began = stats.hour_at(timezone.now() - dt.timedelta(days=60))
    JobRun.objects.bulk_create(
        (unsaved_run(started_at=began + dt.timedelta(seconds=n)) for n in range(20_000)),
        batch_size=1_000,
    )
    worker = runjobs("worker")
    wait_until(lambda: JobRun.objects.count() < 20_000, description="it prunes", interval=0.005)
    asked = time.monotonic()
    worker.terminate()
    assert worker.wait() == 0
    assert time.monotonic() - asked < 4
    # A batch has a thousand runs at most, and all of one hour.
    assert (20_000 - JobRun.objects.count()) % 3_600 in (0, 1_000, 2_000, 3_000)
