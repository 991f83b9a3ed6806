"""Whole rows in one statement: PostgreSQL takes them apart itself, the others get Django's insert.

Which of the two wrote a row must not be seen in it.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from kumiko_django.history import bulk, writer
from kumiko_django.history.batch import Batch, Ended
from kumiko_django.history.bulk import takes_records, upsert
from kumiko_django.history.events import RunEnded, RunStarted
from kumiko_django.history.models import JobRun
from kumiko_django.history.record import encode, row_of
from tests.unit.history.events import batch, ended, line, started
from tests.unit.history.odd import PAYLOADS, TEXTS

pytestmark = pytest.mark.django_db(transaction=True)

is_postgresql = connection.vendor == "postgresql"


def written(events: Batch, monkeypatch: pytest.MonkeyPatch, *, as_records: bool) -> dict[UUID, Any]:
    """Write the events one way, and give all columns of all rows."""
    with monkeypatch.context() as patch:
        if not as_records:
            patch.setattr(writer, "takes_records", lambda alias: False)
        writer.write("default", events)
    rows: dict[UUID, Any] = {row["id"]: row for row in JobRun.objects.values()}
    JobRun.objects.all().delete()
    return rows


def with_records(events: Batch) -> Batch:
    """The same events, each end with its record, as a worker hands them over."""
    for run_id, each in events.ends.items():
        each.record = encode(events.starts[run_id], each.event, [line(1)])
    return events


def odd_batch() -> Batch:
    starts: list[RunStarted] = []
    ends: list[RunEnded] = []
    for name, value in PAYLOADS.items():
        starts.append(started(f"payload {name}", payload=value))
        ends.append(ended(starts[-1].run_id, result=value, progress=value))
    for name, text in TEXTS.items():
        starts.append(
            started(
                f"text {name}", tenant_id=text, trigger=text, worker=text, triggered_by_id=text,
                correlation_id=text, trace_id=text, attempt=3, max_attempts=2**31 - 1,
                wait_ms=2**53,
            )
        )  # fmt: skip
        ends.append(
            ended(
                starts[-1].run_id, status="failed", final=False, error=text, traceback=text,
                reason=text, fingerprint=text, object_ref=text, duration_ms=0,
            )
        )  # fmt: skip
    starts += [started("lives"), started("waited for nothing", wait_ms=None)]
    return batch(*starts, ends=tuple(ends))


def test_both_ways_write_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Design 9: compared column by column, for everything that a record may hold.

    On SQLite there is one way only; there it is that with records against that without.
    """
    events = odd_batch()
    by_django = written(events, monkeypatch, as_records=False)
    by_rows = written(events, monkeypatch, as_records=True)
    by_records = written(with_records(events), monkeypatch, as_records=True)
    assert len(by_django) == len(events.starts)
    for run_id, start in events.starts.items():
        assert by_rows[run_id] == by_django[run_id], start.queue_job_id
        assert by_records[run_id] == by_django[run_id], start.queue_job_id


def test_a_batch_of_short_runs_is_one_statement() -> None:
    """Design 9: on PostgreSQL without BEGIN and COMMIT, which would be exchanges of their own."""
    starts = [started(f"job-{n}") for n in range(100)]
    events = with_records(batch(*starts, ends=tuple(ended(start.run_id) for start in starts)))
    with CaptureQueriesContext(connection) as queries:
        result = writer.write("default", events)
    assert result == {start.run_id: True for start in starts}
    assert JobRun.objects.filter(status="completed").count() == 100
    statements = [query["sql"].split()[0] for query in queries]
    # SQLite takes a bounded number of values in a statement.
    parts = ["BEGIN", *["INSERT"] * (len(statements) - 2), "COMMIT"]
    assert statements == (["INSERT"] if is_postgresql else parts)


def test_a_batch_of_starts_and_late_ends_is_one_statement_too() -> None:
    """A run that took longer has a row already; its end comes with the rows of the short ones."""
    long, short, lives = started("long"), started("short"), started("lives")
    writer.write("default", batch(long))
    ends = {each.run_id: ended(each.run_id, result=[1]) for each in (long, short)}
    events = Batch(
        starts={each.run_id: each for each in (short, lives)},
        ends={
            each.run_id: Ended(ends[each.run_id], Future(), encode(each, ends[each.run_id]))
            for each in (long, short)
        },
    )
    with CaptureQueriesContext(connection) as queries:
        assert writer.write("default", events) == {long.run_id: True, short.run_id: True}
    if is_postgresql:
        assert len(queries) == 1
    rows = JobRun.objects.values_list("queue_job_id", "status").order_by("queue_job_id")
    assert list(rows) == [("lives", "running"), ("long", "completed"), ("short", "completed")]
    assert JobRun.objects.get(queue_job_id="long").result == [1]


def test_large_batches_are_written_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an outage many have waited; one statement must not grow without an end."""
    for module in (bulk, writer):
        monkeypatch.setattr(module, "CHUNK", 20)
    starts = [started(f"job-{n}") for n in range(50)]
    events = with_records(batch(*starts, ends=tuple(ended(start.run_id) for start in starts)))
    with CaptureQueriesContext(connection) as queries:
        assert set(writer.write("default", events).values()) == {True}
    inserts = [query for query in queries if query["sql"].startswith("INSERT")]
    assert len(inserts) == 3
    assert JobRun.objects.count() == 50


def test_an_end_that_is_on_record_is_not_overwritten() -> None:
    """P78: whoever closed the run first stands; a repeat of the same end is no other end."""
    start = started()
    first = ended(start.run_id, status="lost", final=False)
    second = ended(start.run_id, status="completed")
    for end, expected in ((first, True), (first, True), (second, False)):
        events = with_records(batch(start, ends=(end,)))
        assert writer.write("default", events) == {start.run_id: expected}
    assert JobRun.objects.get().status == "lost"


def test_how_many_rows_were_written_is_told() -> None:
    """Fewer than given: some had an end already, and the writer looks whose it is."""
    assert takes_records("default") is is_postgresql
    if not is_postgresql:
        return
    new, runs, done = started("new"), started("runs"), started("done")
    writer.write("default", batch(runs, done, ends=(ended(done.run_id),)))
    rows = [row_of(encode(each, ended(each.run_id))) for each in (new, runs, done)]
    assert upsert("default", rows) == 2
    assert upsert("default", rows) == 0
    assert upsert("default", []) == 0
