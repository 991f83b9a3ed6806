"""Roll-up under kills and under rivals: an hour on record is always a whole one."""

from __future__ import annotations

import datetime as dt
import threading

import pytest
from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.test.utils import CaptureQueriesContext

from kumiko_django.history import stats
from kumiko_django.history.models import JobRun, JobStat, RunStatus
from tests.helpers.processes import run_python
from tests.unit.history.admin_rows import unsaved_run

pytestmark = pytest.mark.django_db(transaction=True)

NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
GROUPS = 1_200
"""More than one statement inserts."""

KILLED = """
import datetime as dt, os, signal, sys
import django
django.setup()
from django.db import connection
from kumiko_django.history import stats
left = [{number}]
def step(execute, sql, params, many, context):
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    left[0] -= 1
    return execute(sql, params, many, context)
noon = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
with connection.execute_wrapper(step):
    stats.roll_up("default", noon, noon + dt.timedelta(minutes=9))
"""


def write_runs(status: str, count: int = GROUPS) -> None:
    JobRun.objects.bulk_create(
        unsaved_run(started_at=NOON, tenant_id=f"tenant-{number}", status=status)
        for number in range(count)
    )


def on_record() -> dict[str, int]:
    rows = list(JobStat.objects.values_list("status", flat=True))
    return {status: rows.count(status) for status in set(rows)}


def test_killed_at_any_statement_it_leaves_the_old_hour_or_the_new_one() -> None:
    """SIGKILL before each statement of a roll-up, one after the other, and after the last."""
    write_runs(RunStatus.RUNNING)
    with CaptureQueriesContext(connection) as queries:
        stats.roll_up(DEFAULT_DB_ALIAS, NOON, NOON + dt.timedelta(minutes=1))
    statements = [query for query in queries if query["sql"].split()[0] not in ("BEGIN", "COMMIT")]
    assert len(statements) >= 5
    old, new = {"running": GROUPS}, {"completed": GROUPS}
    JobRun.objects.update(status=RunStatus.COMPLETED)

    found, number = old, 0
    while found == old:
        code = run_python(KILLED.format(number=number)).returncode
        found = on_record()
        assert (code, found) in ((-9, old), (0, new)), number
        number += 1

    assert number >= 5, "killed that often"


def test_rivals_never_mix_their_rows() -> None:
    """Two that hold the lease at once, as after a freeze: the last one's hour stands, whole."""
    count = 60
    write_runs(RunStatus.RUNNING, count)
    mixed: list[dict[str, int]] = []
    done = threading.Event()

    def roll_up() -> None:
        try:
            for minute in range(12):
                stats.roll_up(DEFAULT_DB_ALIAS, NOON, NOON + dt.timedelta(minutes=minute))
        finally:
            connections.close_all()

    def flip() -> None:
        try:
            while not done.is_set():
                for status in (RunStatus.COMPLETED, RunStatus.RUNNING):
                    JobRun.objects.update(status=status)
        finally:
            connections.close_all()

    rivals = [threading.Thread(target=roll_up) for _ in range(3)]
    flipping = threading.Thread(target=flip)
    for thread in (*rivals, flipping):
        thread.start()
    while any(thread.is_alive() for thread in rivals):
        found = on_record()
        if found and list(found.values()) != [count]:
            mixed.append(found)
    done.set()
    for thread in (*rivals, flipping):
        thread.join()

    assert not mixed
    assert list(on_record().values()) == [count]
