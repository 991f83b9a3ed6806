"""The database goes and comes back under a real worker (user-needs 17 and 19, P26)."""

from __future__ import annotations

import time

from django.db import connection, connections
from pytest_django import Settings

from kumiko_django.history.models import JobRun
from tests.app.jobs import quiet, quiet_async, record, record_async
from tests.app.models import Effect
from tests.helpers import database
from tests.helpers.fixtures import DatabaseAway, QueueStateFactory, RunJobsFactory
from tests.helpers.waiting import wait_until
from tests.integration.worker.host_thread import ended_run, ended_runs


def test_runs_wait_with_their_records_and_lose_none(
    runjobs: RunJobsFactory,
    settings: Settings,
    database_away: DatabaseAway,
    queue_state: QueueStateFactory,
) -> None:
    """Longer than the queue lock, which is kept meanwhile: each job runs once, none fails."""
    settings.KUMIKO = {**settings.KUMIKO, "LOCK_SECONDS": 1.0}
    worker = runjobs("worker", concurrency=6, env={"KUMIKO_TEST_SQLITE_TIMEOUT": "0.1"})
    ids = [
        job.dispatch({"seconds": 1}, tenant_id="acme").job_id
        for job in (quiet, quiet_async)
        for _ in range(3)
    ]
    wait_until(lambda: JobRun.objects.filter(status="running").count() == 6, description="all run")
    with database_away():
        worker.wait_output("The history cannot be written now")
        away = time.monotonic()
        wait_until(lambda: time.monotonic() - away > 2.5, description="it stays away", interval=0.1)
        wait_until(lambda: set(queue_state().completed) == set(ids), description="all have ended")
    for job_id in ids:
        (run,) = ended_runs(job_id)
        assert (run.status, run.start, run.result) == ("completed", 1, "quiet")
    assert worker.output().count("The history cannot be written now") == 1
    assert worker.output().count("The history is written again") == 1


def test_connections_that_were_cut_fail_no_later_job(runjobs: RunJobsFactory) -> None:
    """user-needs 19: kept for ever and cut by the server, in every thread that has one."""
    worker = runjobs("worker", concurrency=4, env={"KUMIKO_TEST_CONN_MAX_AGE": "600"})
    jobs = [record, record_async] * 5
    for number in range(2):
        ids = [job.dispatch({"key": "n"}, tenant_id="acme").job_id for job in jobs]
        assert {ended_run(job_id).status for job_id in ids} == {"completed"}, worker.output()
        connections.close_all()
        if number == 0 and connection.vendor == "postgresql":
            assert database.terminate_connections() >= 2
    assert Effect.objects.count() == 20
