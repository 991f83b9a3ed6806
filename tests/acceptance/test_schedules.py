"""Schedules with real worker processes, as many as a deployment starts at once."""

from __future__ import annotations

from collections import Counter

import pytest

from kumiko_django.history.models import JobRun
from tests.acceptance.clockwork import EVERY_SECONDS, SETTINGS
from tests.helpers.fixtures import QueueStateFactory, RunJobsFactory
from tests.helpers.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.once]

NAME = "clockwork:job:tick"
PROCESSES = 20
ENVIRONMENT = {"DJANGO_SETTINGS_MODULE": SETTINGS}


def occurrences() -> Counter[int]:
    """How often each occurrence has run, by its time in milliseconds."""
    ids = JobRun.objects.filter(job_name=NAME).values_list("queue_job_id", flat=True)
    return Counter(int(job_id.rsplit(":", 1)[1]) for job_id in ids)


@pytest.mark.timeout(240)
def test_twenty_processes_that_start_around_due_times_run_every_occurrence_once(
    runjobs: RunJobsFactory, queue_state: QueueStateFactory
) -> None:
    """user-needs 33, P51, P54: occurrences come every half second, also while processes start.

    Then half of them are stopped and one is killed, and others start: still each one once.
    """
    workers = [
        runjobs("worker", ready=False, concurrency=2, env=ENVIRONMENT) for _ in range(PROCESSES)
    ]
    for worker in workers:
        worker.wait_ready(timeout=120)
    count = len(occurrences())
    for worker in workers[: PROCESSES // 2]:
        worker.terminate()
    workers[-1].kill()
    runjobs("worker", ready=False, concurrency=2, env=ENVIRONMENT).wait_ready(timeout=60)
    wait_until(lambda: len(occurrences()) >= count + 20, description="20 more have run", timeout=60)

    found = occurrences()
    step = round(EVERY_SECONDS * 1000)
    first, last = min(found), max(found)
    # One whose worker was killed in the middle of it runs again, and says so.
    lost = JobRun.objects.filter(job_name=NAME, status="lost").count()
    assert sorted(found) == list(range(first, last + 1, step))
    assert sum(found.values()) - lost == len(found)
    assert queue_state("worker").counts()["failed"] == 0
