"""A database that is away makes runs wait and retry their records; nothing fails (P26).

"Away" is made real: PostgreSQL cuts its connections and accepts none, or only reads, or stops
answering; SQLite is locked by another connection.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from collections.abc import Iterator

import psycopg
import pytest
from django.db import (
    DatabaseError,
    DataError,
    IntegrityError,
    InterfaceError,
    InternalError,
    OperationalError,
    ProgrammingError,
    connection,
    connections,
)

from kumiko_django.history.health import is_away
from kumiko_django.history.models import JobRun
from kumiko_django.history.recorder import Recorder
from tests.helpers import database
from tests.helpers.fixtures import DatabaseAway
from tests.helpers.waiting import wait_until
from tests.unit.history.events import ended, line, started
from tests.unit.history.postgres_proxy import postgres_proxy

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite tells of a lock at once instead of waiting for it."""
    if connection.vendor == "sqlite":
        monkeypatch.setitem(connections.settings["default"]["OPTIONS"], "timeout", 0.05)


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    opened = Recorder()
    opened.open()
    yield opened
    opened.close(5)


def record(recorder: Recorder, job_id: str) -> bool:
    event = started(job_id)
    recorder.run_started(event)
    return recorder.run_ended(ended(event.run_id)).result(10)


def test_runs_wait_and_are_recorded_when_it_is_back(
    impatient: None,
    recorder: Recorder,
    database_away: DatabaseAway,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert record(recorder, "before")
    lives = started("lives")
    recorder.run_started(lives)
    wait_until(lambda: JobRun.objects.count() == 2, description="its start is on record")
    with caplog.at_level(logging.INFO, "kumiko_django.history"):
        with database_away():
            ends = [recorder.run_ended(ended(lives.run_id, result="late"))]
            for number in range(3):
                event = started(f"job-{number}")
                recorder.run_started(event)
                recorder.log_lines(event.run_id, [line(1)])
                ends.append(recorder.run_ended(ended(event.run_id)))
            wait_until(
                lambda: "cannot be written now" in caplog.text, description="it has been noticed"
            )
            # Several tries long; how many there are is told by no one.
            began = time.monotonic()
            wait_until(lambda: time.monotonic() - began > 0.7, description="a while", interval=0.1)
            assert not any(future.done() for future in ends)
        assert [future.result(10) for future in ends] == [True] * 4
    assert JobRun.objects.get(queue_job_id="lives").result == "late"
    assert JobRun.objects.filter(status="completed", logs__number=1).count() == 3
    told = [entry.getMessage() for entry in caplog.records]
    assert len(told) == 2, told
    assert told[0].startswith("The history cannot be written now (")
    assert told[1] == "The history is written again"


def test_a_connection_that_was_cut_costs_no_record(recorder: Recorder) -> None:
    """user-needs 17, 19: the server closed idle connections; on SQLite nothing can be cut."""
    assert record(recorder, "before")
    if connection.vendor == "postgresql":
        connections.close_all()
        assert database.terminate_connections() >= 1
    assert record(recorder, "after")
    assert JobRun.objects.filter(status="completed").count() == 2


@contextlib.contextmanager
def _refuses_writes() -> Iterator[None]:
    """PostgreSQL: read-only, as after a failover. SQLite: locked."""
    if connection.vendor != "postgresql":
        with database.database_away():
            yield
        return
    name = connection.settings_dict["NAME"]
    with connection.cursor() as cursor:
        cursor.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    connections.close_all()
    database.terminate_connections()
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SET default_transaction_read_only = off")
            cursor.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
        connections.close_all()


def test_a_database_that_only_reads_is_waited_for(
    impatient: None, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    with _refuses_writes():
        event = started()
        recorder.run_started(event)
        future = recorder.run_ended(ended(event.run_id))
        wait_until(
            lambda: "cannot be written now" in caplog.text, description="it has been noticed"
        )
        assert not future.done()
    assert future.result(10) is True
    assert JobRun.objects.get().status == "completed"


def test_closing_gives_up_in_time_and_tells_those_who_wait(
    impatient: None, database_away: DatabaseAway
) -> None:
    recorder = Recorder()
    recorder.open()
    with database_away():
        event = started()
        recorder.run_started(event)
        future = recorder.run_ended(ended(event.run_id))
        began = time.monotonic()
        assert recorder.close(0.5) is False
        assert time.monotonic() - began < 4
        assert isinstance(future.exception(1), OperationalError)


@contextlib.contextmanager
def _hangs(monkeypatch: pytest.MonkeyPatch, recorder: Recorder) -> Iterator[None]:
    """PostgreSQL answers nothing any more. SQLite: the driver waits for a lock for 20 s."""
    if connection.vendor != "postgresql":
        locker = sqlite3.connect(str(connection.settings_dict["NAME"]), isolation_level=None)
        locker.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            locker.close()
        return
    settings = connections.settings["default"]
    with postgres_proxy(settings["HOST"]) as proxy:
        monkeypatch.setitem(settings, "HOST", proxy.directory)
        assert record(recorder, "through the proxy")
        proxy.freeze()
        yield


def test_closing_does_not_wait_for_a_driver_that_hangs(
    monkeypatch: pytest.MonkeyPatch, transactional_db: None
) -> None:
    """A process that stops must not hang because the database does, nor may its runs."""
    recorder = Recorder()
    recorder.open()
    with _hangs(monkeypatch, recorder):
        event = started()
        recorder.run_started(event)
        future = recorder.run_ended(ended(event.run_id))
        began = time.monotonic()
        assert recorder.close(0.3) is False
        assert time.monotonic() - began < 4
        assert isinstance(future.exception(1), TimeoutError)
    wait_until(lambda: not recorder._thread.is_alive(), description="the thread ends when it can")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OperationalError("gone"), True),
        (InterfaceError("closed"), True),
        (InternalError("read-only"), True),
        (DataError("too long"), False),
        (IntegrityError("key"), False),
        (DatabaseError("something"), False),
        (ValueError("ours"), False),
    ],
)
def test_which_errors_mean_away(error: Exception, expected: bool) -> None:
    assert is_away(error) is expected


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (psycopg.errors.UndefinedTable, True),
        (psycopg.errors.UndefinedColumn, True),
        (psycopg.errors.InsufficientPrivilege, True),
        (psycopg.errors.InvalidSchemaName, True),
        (psycopg.errors.SyntaxError, False),
        (None, False),
    ],
)
def test_a_database_that_is_being_migrated_is_waited_for(
    cause: type[psycopg.Error] | None, expected: bool
) -> None:
    """P26: no row is to blame, so none may be given up. SQLite calls the same operational."""
    error = ProgrammingError("relation does not exist")
    error.__cause__ = None if cause is None else cause("relation does not exist")
    assert is_away(error) is expected


def test_a_limit_of_postgresql_is_not_waited_for() -> None:
    """Class 54 counts as operational, and no waiting helps: it would hold up all records."""
    error = OperationalError("index row size exceeds maximum")
    error.__cause__ = psycopg.errors.ProgramLimitExceeded("index row size exceeds maximum")
    assert is_away(error) is False
