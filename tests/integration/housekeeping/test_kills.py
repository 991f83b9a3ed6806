"""Roll-up under kills and under rivals: an hour on record is always a whole one."""

from __future__ import annotations

import datetime as dt
import json
import signal
import threading

import pytest
from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.test.utils import CaptureQueriesContext

from kumiko_django.history import stats
from kumiko_django.history.models import JobRun, JobStat, RunStatus
from tests.helpers.processes import run_django
from tests.unit.history.admin_rows import unsaved_run

pytestmark = pytest.mark.django_db(transaction=True)

NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
GROUPS = 1_200
"""More than one statement inserts."""

KILLED = """
import datetime as dt, json, os, signal
from collections import Counter
from django.db import connection
from kumiko_django.history import stats
from kumiko_django.history.models import JobStat

noon = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)

def roll_up(left):
    def step(execute, sql, params, many, context):
        nonlocal left
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return execute(sql, params, many, context)
    with connection.execute_wrapper(step):
        stats.roll_up("default", noon, noon + dt.timedelta(minutes=9))

code, number = -signal.SIGKILL, 0
while code == -signal.SIGKILL:
    connection.close()
    if (pid := os.fork()) == 0:
        try:
            roll_up(number)
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    found = Counter(JobStat.objects.values_list("status", flat=True))
    print(json.dumps([code, found]))
    number += 1
"""
"""A process for each statement, killed before it; what each has left is printed."""


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

    result = run_django("shell", "--no-imports", "--verbosity", "0", "--command", KILLED)

    *killed, last = [json.loads(line) for line in result.stdout.splitlines()]
    assert last == [0, new], result.stderr
    assert killed == [[-signal.SIGKILL, old]] * len(killed)
    assert len(killed) >= 5, "killed that often"


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
