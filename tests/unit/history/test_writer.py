"""What one batch leaves in the tables, on both databases, when all goes well and when not."""

from __future__ import annotations

import datetime as dt
import logging
from typing import Any
from uuid import UUID

import pytest
from django.db import IntegrityError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from kumiko_django.history import record, writer
from kumiko_django.history.batch import Batch
from kumiko_django.history.models import JobRun, JobRunLog
from kumiko_django.types.ids import uuid7
from tests.unit.history.events import CREATED, batch, ended, line, started

pytestmark = pytest.mark.django_db


def write(written: Batch) -> dict[UUID, Any]:
    return writer.write("default", written)


def test_a_start_and_its_end_are_one_insert() -> None:
    """design 9: the whole row of a short run is one insert, together with those of others."""
    events = [started(f"job-{n}") for n in range(20)]
    ends = tuple(ended(event.run_id, result={"n": 1}, reason="") for event in events)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        result = write(batch(*events, ends=ends))
    assert result == {event.run_id: True for event in events}
    statements = [q["sql"] for q in queries if q["sql"].startswith(("INSERT", "UPDATE", "SELECT"))]
    assert len(statements) == 1
    run = JobRun.objects.get(queue_job_id="job-7")
    assert (run.status, run.final, run.result, run.duration_ms) == (
        "completed", True, {"n": 1}, 12,
    )  # fmt: skip


def test_a_run_that_lives_is_running_and_then_ends() -> None:
    start = started()
    assert write(batch(start)) == {}
    run = JobRun.objects.get()
    assert (run.status, run.final, run.finished_at) == ("running", False, None)
    failure = ended(start.run_id, status="failed", final=False, error="E", traceback="T")
    assert write(batch(ends=(failure,))) == {start.run_id: True}
    run.refresh_from_db()
    assert (run.status, run.error, run.traceback) == ("failed", "E", "T")


def test_a_late_end_does_not_overwrite(caplog: pytest.LogCaptureFixture) -> None:
    """P78: whoever closed the run first stands."""
    first, second = started(), started(start=2)
    write(batch(first))
    write(batch(second))
    assert JobRun.objects.get(id=first.run_id).status == "lost"
    assert write(batch(ends=(ended(first.run_id),))) == {first.run_id: False}
    run = JobRun.objects.get(id=first.run_id)
    assert (run.status, run.reason) == ("lost", "the worker died or lost touch with the queue")
    assert run.finished_at is not None


def test_a_redelivery_closes_only_the_runs_of_its_own_job() -> None:
    """P30, P73: same job, creation time and lane; another job with the same id is not touched."""
    lost = started()
    others = [
        started("other"),
        started(lane="api"),
        started(queue_created_at=CREATED.replace(hour=11)),
    ]
    write(batch(lost, *others))
    write(batch(started(start=2)))
    assert JobRun.objects.get(id=lost.run_id).status == "lost"
    assert {run.status for run in JobRun.objects.filter(id__in=[o.run_id for o in others])} == {
        "running"
    }


def test_a_retry_closes_a_run_whose_worker_died() -> None:
    write(batch(started()))
    write(batch(started(attempt=2, start=2)))
    assert list(JobRun.objects.order_by("id").values_list("status", flat=True)) == [
        "lost",
        "running",
    ]


def test_runs_that_were_lost_before_they_were_on_record_are_added() -> None:
    """design 9: a job that kills its worker at once leaves no row; the queue counts the losses."""
    on_record, third = started(), started(start=4, losses=2, tenant_id="globex", payload={"n": 9})
    write(batch(on_record, ends=(ended(on_record.run_id, status="interrupted", final=False),)))
    fourth = batch(third, ends=(ended(third.run_id),))
    write(fourth)
    rows = list(JobRun.objects.order_by("start"))
    assert [row.id for row in rows[1:]] == sorted(row.id for row in rows[1:])
    assert [(row.start, row.status) for row in rows] == [
        (1, "interrupted"),
        (2, "lost"),
        (3, "lost"),
        (4, "completed"),
    ]
    lost = rows[1]
    assert (lost.tenant_id, lost.payload, lost.worker, lost.wait_ms) == (
        "globex", {"n": 9}, "", None,
    )  # fmt: skip
    assert lost.reason.endswith("before the run was on record")
    assert lost.finished_at == lost.started_at == rows[3].started_at
    write(fourth)
    assert JobRun.objects.count() == 4, "and once only"


def test_a_loss_whose_run_has_a_row_adds_none() -> None:
    """It ended on record, and the queue could not be told; or it is the lost row itself."""
    first = started()
    write(batch(first, ends=(ended(first.run_id),)))
    write(batch(started(start=2, losses=1)))
    write(batch(started(start=3, losses=2)))
    statuses = JobRun.objects.order_by("start").values_list("start", "status")
    assert list(statuses) == [(1, "completed"), (2, "lost"), (3, "running")]


def test_lost_runs_of_a_job_older_than_the_history_are_not_added() -> None:
    """They may have been on record and pruned."""
    old = timezone.now() - dt.timedelta(days=31)
    write(batch(started(start=3, losses=2, queue_created_at=old)))
    assert JobRun.objects.get().status == "running"


def test_absurd_counts_of_a_foreign_job_add_little() -> None:
    write(batch(started(start=2**31 - 1, losses=2**31 - 1)))
    assert JobRun.objects.filter(status="lost").count() == 100


def test_a_batch_written_twice_is_written_once() -> None:
    """The commit went through and its answer was lost: the recorder repeats the batch."""
    long, short = started("long"), started("short")
    write(batch(long))
    repeated = batch(
        short,
        ends=(ended(short.run_id, result=1), ended(long.run_id, status="failed", error="E")),
        logs=((short.run_id, line(1)), (long.run_id, line(1)), (long.run_id, line(2))),
        progress={long.run_id: {"done": 1}},
    )
    first = write(repeated)
    before = list(JobRun.objects.values()), list(JobRunLog.objects.values("run", "number"))
    assert write(repeated) == first == {short.run_id: True, long.run_id: True}
    assert (
        list(JobRun.objects.values()),
        list(JobRunLog.objects.values("run", "number")),
    ) == before


def test_a_key_that_is_taken_takes_the_next_free_start() -> None:
    """P73, design 6: a queue that was restored hands a job out under a start that has a row
    already."""
    done = started()
    write(batch(done, ends=(ended(done.run_id),)))
    again, other = started(), started("other")
    result = write(batch(again, other, ends=(ended(again.run_id), ended(other.run_id))))
    assert result == {again.run_id: True, other.run_id: True}
    rows = JobRun.objects.filter(queue_job_id="job").order_by("start")
    assert [(row.id, row.start, row.status) for row in rows] == [
        (done.run_id, 1, "completed"),
        (again.run_id, 2, "completed"),
    ]
    assert JobRun.objects.get(queue_job_id="other").start == 1


def test_a_run_whose_key_was_taken_by_a_lost_one_closes_it() -> None:
    """None stays on running: also where the queue counts its starts from one again."""
    lost = started()
    write(batch(lost))
    write(batch(started()))
    assert JobRun.objects.get(id=lost.run_id).status == "lost"
    assert JobRun.objects.get(start=2).status == "running"


def test_one_row_that_cannot_be_stored_takes_no_other_with_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An odd record is kept without its payload; the runs beside it are complete."""
    for module in (writer, record):
        monkeypatch.setattr(module, "clean_row", dict)  # a case that the cleaning does not know
    good, odd = started("good"), started("odd", payload={"n": float("nan")})
    result = write(
        batch(good, odd, ends=(ended(good.run_id, result=[1]), ended(odd.run_id, result=[1])))
    )
    assert result == {good.run_id: True, odd.run_id: True}
    kept = JobRun.objects.get(queue_job_id="odd")
    assert (kept.status, kept.payload, kept.reason) == ("completed", None, "record incomplete")
    assert JobRun.objects.get(queue_job_id="good").result == [1]


def test_an_event_that_nothing_helps_is_told_to_its_run_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = started("good"), started("bad", tenant_id=None)
    with caplog.at_level(logging.ERROR, "kumiko_django.history"):
        result = write(batch(good, bad, ends=(ended(good.run_id), ended(bad.run_id))))
    assert result[good.run_id] is True
    assert isinstance(result[bad.run_id], IntegrityError)
    assert [run.queue_job_id for run in JobRun.objects.all()] == ["good"]
    assert "cannot be recorded" in caplog.text


def test_texts_that_no_database_takes_are_stored_clean() -> None:
    """NUL, surrogates and endless texts: in the payload, the log, the error, the key itself."""
    event = started(
        "id\x00" + "x" * 400,
        job_name="n" * 300,
        payload={"a\x00": "\ud800"},
        trigger="\x00",
        correlation_id="c" * 300,
        start=2,
    )
    end = ended(event.run_id, status="failed", error="\x00 E", traceback="\ud800", reason="r" * 999)
    logs = ((event.run_id, line(1, "\x00 line", key="\udfff")),)
    assert write(batch(event, ends=(end,), logs=logs)) == {event.run_id: True}
    run = JobRun.objects.get()
    assert run.queue_job_id == ("id\ufffd" + "x" * 400)[:255]
    assert (run.error, run.traceback, len(run.reason)) == ("\ufffd E", "\ufffd", 255)
    assert run.payload == {"a\ufffd": "\ufffd"}
    stored = JobRunLog.objects.get()
    assert (stored.message, stored.data) == ("\ufffd line", {"key": "\ufffd"})


def test_a_redelivery_of_an_odd_id_finds_its_lost_run() -> None:
    """The stored id is cut and cleaned, so what is looked for must be too."""
    job_id = "\x00" + "x" * 400
    write(batch(started(job_id)))
    write(batch(started(job_id, start=2)))
    assert [run.status for run in JobRun.objects.order_by("start")] == ["lost", "running"]


def test_lines_of_a_deleted_run_are_dropped() -> None:
    """P80: an operator deletes a run that still lives; nothing breaks."""
    gone, there = uuid7(), started()
    logs = ((gone, line(1)), (there.run_id, line(1)))
    assert write(batch(there, logs=logs)) == {}
    assert [row.run_id for row in JobRunLog.objects.all()] == [there.run_id]
    assert write(batch(ends=(ended(gone),))) == {gone: False}


def test_progress_of_a_run_that_has_ended_is_ignored() -> None:
    event = started()
    write(batch(event, progress={event.run_id: {"done": 1}}))
    assert JobRun.objects.get().progress == {"done": 1}
    write(batch(ends=(ended(event.run_id, progress={"done": 2}),)))
    write(batch(progress={event.run_id: {"done": 1}}))
    assert JobRun.objects.get().progress == {"done": 2}
