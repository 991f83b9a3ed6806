"""Runs of other jobs with the same id."""

from __future__ import annotations

from tests.regressions.regression import Regression, Replacement

REGRESSION = Regression(
    was=(
        "a run was looked up by the id of its job alone, which another lane, or a queue "
        "that was emptied, gives again: the wrong row was closed."
    ),
    test="tests/unit/history/test_writer.py::test_a_redelivery_closes_only_the_runs_of_its_own_job",
    fails_at="assert {run.status for run in JobRun.objects.filter",
    changes=(
        Replacement(
            "kumiko_django/history/lost.py",
            old="lane=row.lane, queue_job_id=row.queue_job_id,",
            new="queue_job_id=row.queue_job_id,",
        ),
        Replacement(
            "kumiko_django/history/lost.py",
            old=" queue_created_at=row.queue_created_at",
            new="",
        ),
    ),
)
