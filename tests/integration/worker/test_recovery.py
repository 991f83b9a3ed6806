"""Records that a worker has left beside the queue are written by any other (design 9)."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterable
from typing import Any

import pytest
import redis
from django.utils import timezone

from kumiko_django.broker.records import field_of, records_key
from kumiko_django.definitions.options import Lane
from kumiko_django.history.events import LogLine, RunStarted
from kumiko_django.history.models import JobRun, JobRunLog
from kumiko_django.history.record import encode
from kumiko_django.history.visible_models import TenantVisibleFailure, TenantVisibleRun
from kumiko_django.types.visible import Visible, subject_of
from kumiko_django.worker import recovery
from kumiko_django.worker.recovery import recover
from tests.helpers.fixtures import RunJobsFactory
from tests.helpers.waiting import wait_until
from tests.unit.history.events import batch, ended, line, started

pytestmark = pytest.mark.django_db(transaction=True)

NOW = timezone.now()
LONG_AGO = NOW - dt.timedelta(minutes=5)
AGE = dt.timedelta(minutes=1)


class Left:
    """What lies beside the queues."""

    def __init__(self, client: redis.Redis) -> None:
        self._client: Any = client

    def put(self, start: RunStarted, lines: Iterable[LogLine] = (), **end: Any) -> str:
        """Leave the record of a run, as a worker does that dies then."""
        values = {"finished_at": LONG_AGO, **end}
        record = encode(start, ended(start.run_id, **values), list(lines))
        created_ms = round(start.queue_created_at.timestamp() * 1000)
        field = field_of(start.queue_job_id, created_ms, start.start)
        lane: Lane = "api" if start.lane == "api" else "worker"
        self.raw(field, record, lane)
        return field

    def raw(self, field: str, record: str, lane: Lane = "worker") -> None:
        self._client.hset(records_key(lane), field, record)

    def fields(self, lane: Lane = "worker") -> set[str]:
        return set(self._client.hkeys(records_key(lane)))


@pytest.fixture
def left(raw_redis: redis.Redis) -> Left:
    return Left(raw_redis)


def yes() -> bool:
    return True


def rows(job_id: str) -> list[tuple[int, str, bool]]:
    runs = JobRun.objects.filter(queue_job_id=job_id).order_by("start", "id")
    return list(runs.values_list("start", "status", "final"))


def test_records_of_both_lanes_are_written_and_dropped(
    left: Left, caplog: pytest.LogCaptureFixture
) -> None:
    """With payload, result, error and lines; as their own worker would have written them."""
    left.put(started("a", payload={"n": 7}), [line(1), line(2)], result={"m": 8})
    left.put(started("b", lane="api"), status="failed", error="E: broken", traceback="Traceback")
    with caplog.at_level(logging.INFO, "kumiko_django.worker"):
        assert recover(NOW, yes) == 2
    assert (left.fields(), left.fields("api")) == (set(), set())
    first, second = JobRun.objects.order_by("queue_job_id")
    assert (first.payload, first.result, first.lane) == ({"n": 7}, {"m": 8}, "worker")
    assert (second.status, second.error, second.lane) == ("failed", "E: broken", "api")
    assert JobRunLog.objects.filter(run=first).count() == 2
    assert "wrote the records of 2 runs" in caplog.text


def test_young_records_are_left_to_their_worker(left: Left) -> None:
    """It lives, most likely, and writes many in one commit."""
    young = left.put(started("young"), finished_at=NOW - recovery.AGE + dt.timedelta(seconds=1))
    left.put(started("old"), finished_at=NOW - recovery.AGE)
    assert recover(NOW, yes) == 1
    assert left.fields() == {young}
    assert [run.queue_job_id for run in JobRun.objects.all()] == ["old"]
    assert recover(NOW + dt.timedelta(seconds=2), yes) == 1
    assert left.fields() == set()


def test_nothing_left_nothing_done(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kumiko_django.worker"):
        assert recover(NOW, yes) == 0
    assert not caplog.records


def test_the_runs_of_a_job_are_written_in_their_order(
    left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later run closes those before it that stand on running, and adds the lost ones it knows of:
    written first, it would take an earlier one for lost. In portions of one, so that it shows."""
    monkeypatch.setattr(recovery, "_CHUNK", 1)
    starts = [started("job", start=n, attempt=n, losses=0) for n in range(1, 12)]
    for start in reversed(starts):
        left.put(start, status="failed", final=start.start == 11)
    left.put(started("another"))
    assert recover(NOW, yes) == 12
    assert rows("job") == [(n, "failed", n == 11) for n in range(1, 12)]


def test_a_run_whose_start_is_on_record_gets_its_end(left: Left) -> None:
    """A long run: its row stands on running until then."""
    from kumiko_django.history import writer

    start = started("long")
    writer.write("default", batch(start))
    left.put(start, status="completed", result="done")
    assert recover(NOW, yes) == 1
    run = JobRun.objects.get()
    assert (run.id, run.status, run.result) == (start.run_id, "completed", "done")


def test_losses_of_the_job_are_added(left: Left) -> None:
    """Design 9: the record carries what the queue had counted when its run began."""
    left.put(started("job", start=3, losses=2))
    assert recover(NOW, yes) == 1
    assert rows("job") == [(1, "lost", False), (2, "lost", False), (3, "completed", True)]


def test_what_cannot_be_read_is_dropped_and_told_and_stops_nothing(
    left: Left, caplog: pytest.LogCaptureFixture
) -> None:
    """Design 1: others can write to our Redis; one bad text must not hold up all that follow."""
    left.put(started("good"))
    bad = {
        "text": "no record", "nothing": "", "list": "[]", "deep": "[" * 100_000,
        "no zone": encode(started(), ended(started().run_id, finished_at=dt.datetime(2026, 1, 1))),  # noqa: DTZ001
    }  # fmt: skip
    for field, text in bad.items():
        left.raw(field, text)
    with caplog.at_level(logging.ERROR, "kumiko_django.worker"):
        assert recover(NOW, yes) == 1
    assert left.fields() == set()
    told = [entry.getMessage() for entry in caplog.records]
    assert sorted(told) == sorted(f"The record {field} of lane worker is dropped" for field in bad)


def test_what_the_database_refuses_is_told_and_takes_no_other_with_it(
    left: Left, caplog: pytest.LogCaptureFixture
) -> None:
    """It would not be better next time; the records beside it are written."""
    left.put(started("bad", attempt=2**70))
    left.put(started("good"))
    with caplog.at_level(logging.ERROR, "kumiko_django.history"):
        assert recover(NOW, yes) == 1
    assert left.fields() == set()
    assert [run.queue_job_id for run in JobRun.objects.all()] == ["good"]
    assert "cannot be recorded" in caplog.text


def test_a_stop_ends_it_between_two_portions(left: Left, monkeypatch: pytest.MonkeyPatch) -> None:
    """P93: and what is left is there for the next worker."""
    monkeypatch.setattr(recovery, "_CHUNK", 2)
    for number in range(6):
        left.put(started(f"job-{number}"))
    answers = iter([True, True, False])
    assert recover(NOW, lambda: next(answers)) == 4
    assert len(left.fields()) == 2
    assert recover(NOW, yes) == 2
    assert JobRun.objects.count() == 6


def test_repeated_it_changes_nothing(left: Left) -> None:
    """Two workers may find the same record, and a worker that is only slow writes it, too."""
    start = started("job", start=2, losses=1)
    for _ in range(3):
        left.put(start, [line(1)], result=1)
        recover(NOW, yes)
    assert rows("job") == [(1, "lost", False), (2, "completed", True)]
    assert JobRunLog.objects.count() == 1
    assert left.fields() == set()


def test_what_tenants_see_is_in_the_record(left: Left) -> None:
    """P109: the success of another process is on record before the failure, whose worker died."""
    subject = subject_of({"id": 7}, ("id",))
    seen = [
        Visible("acme", "testapp:job:record", LONG_AGO - n * AGE, subject, "app.failed", subject)
        for n in range(3)
    ]
    success, failure, earlier = (
        started(f"job-{n}", started_at=each.started_at, visible=each) for n, each in enumerate(seen)
    )
    for start, status in ((success, "completed"), (failure, "failed"), (earlier, "completed")):
        left.put(start, status=status, visible=start.visible)
        assert recover(NOW, yes) == 1
    row = TenantVisibleFailure.objects.get()
    assert (row.run_id, row.success_run_id) == (failure.run_id, success.run_id)
    assert (row.subject, row.message_key, row.is_resolved) == ({"id": 7}, "app.failed", True)
    assert TenantVisibleRun.objects.get().run_id == success.run_id


def test_a_worker_finds_what_another_has_left(left: Left, runjobs: RunJobsFactory) -> None:
    """Design 9: at its start, also where no job comes any more."""
    for number in range(3):
        left.put(started(f"job-{number}"), finished_at=timezone.now() - dt.timedelta(minutes=1))
    worker = runjobs("worker")
    wait_until(lambda: JobRun.objects.count() == 3, description="they are on record")
    wait_until(lambda: not left.fields(), description="the queue has dropped them")
    worker.wait_output("wrote the records of 3 runs that their workers had left behind")
    worker.terminate()
    assert worker.wait() == 0
