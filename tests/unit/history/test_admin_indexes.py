"""Every question of the admin's pages is answered from an index, by the database's own word."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from kumiko_django.history.models import JobRun, JobRunLog, RunStatus
from tests.unit.history.admin_rows import make_log, unsaved_run

pytestmark = pytest.mark.django_db

ROWS = 20_000
TABLES = (JobRun._meta.db_table, JobRunLog._meta.db_table)
# What any step may at most have to do: as many rows as are looked through for names to suggest.
FEW = 1_000


@pytest.fixture(scope="module")
def history(django_db_setup: None, django_db_blocker: Any) -> Iterator[list[JobRun]]:
    """Many runs, most of them completed, over two weeks; some have logs, one a long one."""
    now = timezone.now()
    with django_db_blocker.unblock():
        runs = JobRun.objects.bulk_create(
            (_run(number, now) for number in range(ROWS)), batch_size=1_000
        )
        for run in runs[:80]:
            make_log(run, 200)
        make_log(runs[-1], 1_200)
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
        yield runs
        with connection.cursor() as cursor:
            for table in reversed(TABLES):
                cursor.execute(f"DELETE FROM {table}")  # noqa: S608
            cursor.execute("ANALYZE")


def _run(number: int, now: dt.datetime) -> JobRun:
    status = RunStatus.COMPLETED
    if number % 50 == 0:
        status = RunStatus.FAILED
    elif number % 5_000 == 1:
        status = RunStatus.RUNNING
    return unsaved_run(
        started_at=now - dt.timedelta(seconds=60 * (ROWS - number)),
        status=status,
        job_name=f"testapp:job:number-{number % 20}",
        tenant_id=f"tenant-{number % 200}",
        lane="api" if number % 10 == 0 else "worker",
        object_ref=f"testapp.order:{number // 3}" if number % 3 == 0 else "",
    )


QUESTIONS: dict[str, dict[str, str]] = {
    "all": {},
    "a common status": {"status": "completed"},
    "a rare status": {"status": "running"},
    "a status that no run has": {"status": "lost"},
    "a lane": {"lane": "api"},
    "a job": {"job": "testapp:job:number-7"},
    "a job that never ran": {"job": "testapp:job:never"},
    "a tenant": {"tenant": "tenant-13"},
    "the last hour": {"since": "1h"},
    "the last week": {"since": "7d"},
    "failures of the last day": {"status": "failed", "since": "24h"},
    "failures of a tenant": {"status": "failed", "tenant": "tenant-50"},
    "everything at once": {
        "status": "failed", "tenant": "tenant-50", "job": "testapp:job:number-10",
        "lane": "api", "since": "7d",
    },
    "nothing to be found": {"q": "nothing"},
    "an id that is not there": {"q": str(uuid4())},
    "an object": {"q": "testapp.order:12"},
    "failures of an object": {"q": "testapp.order:12", "status": "failed"},
}  # fmt: skip


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_list_and_its_filters_use_an_index(
    history: list[JobRun], admin_client: Client, question: str
) -> None:
    """User-needs 49."""
    url = f"{reverse('admin:kumiko_jobrun_changelist')}?{urlencode(QUESTIONS[question])}"

    assert_indexed(admin_client, url, statements=2, few="q" in QUESTIONS[question])


@pytest.mark.parametrize("place", ["older", "newer"])
def test_a_page_far_away_is_as_cheap(
    history: list[JobRun], admin_client: Client, place: str
) -> None:
    anchor = history[ROWS // 2].id
    url = f"{reverse('admin:kumiko_jobrun_changelist')}?p={place}-{anchor}&status=completed"

    assert_indexed(admin_client, url, statements=2)


@pytest.mark.parametrize("attribute", ["id", "queue_job_id", "correlation_id"])
def test_the_search_uses_an_index(
    history: list[JobRun], admin_client: Client, attribute: str
) -> None:
    text = getattr(history[ROWS // 2], attribute)
    url = f"{reverse('admin:kumiko_jobrun_changelist')}?q={text}"

    html = assert_indexed(admin_client, url, statements=2, few=True)
    assert str(history[ROWS // 2].id) in html


def test_the_page_of_a_run_uses_indexes(history: list[JobRun], admin_client: Client) -> None:
    url = reverse("admin:kumiko_jobrun_change", args=[history[-1].pk])

    # The run, both ends of its log, the runs of its job.
    assert_indexed(admin_client, url, statements=4, few=True)


def assert_indexed(
    client: Client,
    url: str,
    *,
    statements: int,
    few: bool = False,
    tables: tuple[str, ...] = TABLES,
) -> str:
    """The page's queries of our tables neither scan a table nor sort many rows.

    Args:
        client: Of somebody who may see the page.
        url: The page.
        statements: How many queries of our tables it may make.
        few: Whether the rows of one job, object or chain may be sorted. PostgreSQL says how many
            it expects; SQLite only says that it sorts.
        tables: These tables.
    """
    with CaptureQueriesContext(connection) as captured:
        response = client.get(url)
    assert response.status_code == 200
    asked = [query["sql"] for query in captured if any(table in query["sql"] for table in tables)]
    assert len(asked) == statements
    for sql in asked:
        complaints = list(_complaints(sql, few))
        assert not complaints, "\n".join([sql, *complaints])
    html: str = response.content.decode()
    return html


def _complaints(sql: str, few: bool) -> Iterator[str]:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}")
            answer = cursor.fetchone()[0]
            plans = json.loads(answer) if isinstance(answer, str) else answer
            yield from _postgresql(plans[0]["Plan"])
        else:
            cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
            yield from _sqlite([row[-1] for row in cursor.fetchall()], few)


def _postgresql(plan: dict[str, Any]) -> Iterator[str]:
    kind = plan["Node Type"]
    if "Seq Scan" in kind:
        yield f"{kind} on {plan['Relation Name']}"
    # A bitmap is of entries of an index, several of which are combined before a row is looked at.
    if plan["Actual Rows"] > FEW and kind != "Bitmap Index Scan":
        yield f"{kind} gives {plan['Actual Rows']} rows"
    if "Sort" in kind and max(child["Plan Rows"] for child in plan["Plans"]) > FEW:
        yield f"{kind} of more than {FEW} rows"
    if plan.get("Rows Removed by Filter", 0) > FEW:
        # An index that is read from end to end is no better than the table.
        yield f"{kind} that looks at {plan['Rows Removed by Filter']} rows in vain"
    for child in plan.get("Plans", ()):
        yield from _postgresql(child)


def _sqlite(steps: list[str], few: bool) -> Iterator[str]:
    for step in steps:
        if step.startswith("SCAN") and "USING" not in step:
            yield step
        if "TEMP B-TREE" in step and not few:
            yield step
