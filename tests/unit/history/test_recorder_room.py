"""What waits for the database is bounded, counted right, and known while it waits (design 9)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection, connections

from kumiko_django.history import recorder as recorder_module
from kumiko_django.history.events import LogLine, RunEnded, RunStarted
from kumiko_django.history.models import JobRun, JobRunLog
from kumiko_django.history.record import UnreadableRecord, encode
from kumiko_django.history.recorder import Recorder
from tests.helpers.fixtures import DatabaseAway
from tests.helpers.waiting import wait_until
from tests.unit.history.events import ended, line, started

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    if connection.vendor == "sqlite":  # it tells of a lock at once instead of waiting for it
        monkeypatch.setitem(connections.settings["default"]["OPTIONS"], "timeout", 0.05)
    opened = Recorder()
    opened.open()
    yield opened
    opened.close(5)


def a_run(job_id: str = "job", lines: tuple[LogLine, ...] = ()) -> tuple[RunStarted, RunEnded, str]:
    start = started(job_id)
    end = ended(start.run_id)
    return start, end, encode(start, end, lines)


def wait_written(count: int) -> None:
    wait_until(
        lambda: JobRun.objects.exclude(status="running").count() == count,
        description=f"{count} runs are on record",
    )


def wait_empty(recorder: Recorder) -> None:
    """The counts of what waits are those of nothing."""
    wait_until(
        lambda: (recorder._unwritten, recorder._characters) == (0, 0),
        description="nothing waits by its own count",
    )


def test_ended_runs_that_wait_take_the_room_until_they_are_written(
    recorder: Recorder, database_away: DatabaseAway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Design 9: bounded memory; and the room comes back with the database, all of it."""
    monkeypatch.setattr(recorder_module, "MOST_ENDS", 10)
    with database_away():
        for number in range(10):
            assert recorder.has_room(), number
            _, end, record = a_run(f"job-{number}")
            recorder.run_ended(end, record, awaited=False)
        assert not recorder.has_room()
    wait_written(10)
    wait_empty(recorder)
    assert recorder.has_room()


def test_long_records_take_the_room_sooner(
    recorder: Recorder, database_away: DatabaseAway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Payloads may have half a megabyte; so their length counts, too."""
    monkeypatch.setattr(recorder_module, "MOST_CHARACTERS", 100_000)
    with database_away():
        for number in range(4):
            assert recorder.has_room()
            start = started(f"job-{number}", payload={"text": "x" * 30_000})
            end = ended(start.run_id)
            recorder.run_ended(end, encode(start, end))
        assert not recorder.has_room()
    wait_written(4)
    wait_empty(recorder)
    assert recorder.has_room()


def test_room_comes_back_when_records_are_given_up(
    recorder: Recorder, database_away: DatabaseAway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue keeps them for the next worker."""
    monkeypatch.setattr(recorder_module, "MOST_ENDS", 1)
    with database_away():
        _, end, record = a_run()
        future = recorder.run_ended(end, record)
        assert not recorder.has_room()
        recorder.hurry(0)
        assert future.exception(10) is not None
        wait_empty(recorder)
        assert recorder.has_room()


def test_a_run_told_of_twice_takes_room_once(recorder: Recorder) -> None:
    """Its retry may be fetched, with the run's record, before the run itself has heard that the
    queue agrees. Counted twice and forgotten once, the worker would stop for good some day."""
    start, end, record = a_run()
    with recorder._changed:  # both come into one batch
        recorder.run_found(record)
        future = recorder.run_ended(end, record, awaited=False)
    assert future.result(5) is True
    wait_empty(recorder)
    assert JobRun.objects.get().id == start.run_id


def test_whoever_waits_for_a_run_told_of_twice_is_answered(recorder: Recorder) -> None:
    _, end, record = a_run()
    with recorder._changed:
        first = recorder.run_ended(end, record)
        second = recorder.run_ended(end, record)
    assert (first.result(5), second.result(5)) == (True, True)
    wait_empty(recorder)


def test_lines_that_are_not_on_record_are_known(
    recorder: Recorder, database_away: DatabaseAway
) -> None:
    """Design 9: they go into the run's record, so that they survive the worker as it does."""
    start, other = started(), started("other")
    recorder.run_started(start)
    recorder.log_lines(start.run_id, [line(1, "on record")])
    wait_until(JobRunLog.objects.exists, description="the first line is on record")
    wait_until(
        lambda: not recorder.unwritten_lines(start.run_id), description="nothing is left of it"
    )
    with database_away():
        second, third = line(2, "being written"), line(3, "gathers")
        recorder.log_lines(start.run_id, [second])
        wait_until(lambda: recorder._being_written.logs, description="the second is being written")
        recorder.log_lines(start.run_id, [third])
        recorder.log_lines(other.run_id, [line(1)])
        assert recorder.unwritten_lines(start.run_id) == [second, third]
        record = encode(start, ended(start.run_id), recorder.unwritten_lines(start.run_id))
    wait_until(lambda: not recorder.unwritten_lines(start.run_id), description="all is written")
    recorder.run_found(record)
    wait_written(1)
    assert list(JobRunLog.objects.filter(run=start.run_id).values_list("number", flat=True)) == [
        1,
        2,
        3,
    ]


def test_the_record_of_a_run_that_another_left_is_written(recorder: Recorder) -> None:
    """Design 9: with its lines, and once, however often it is found."""
    start, _, record = a_run(lines=(line(1), line(2)))
    for _ in range(3):
        recorder.run_found(record)
    wait_written(1)
    recorder.run_found(record)
    wait_empty(recorder)
    assert [run.id for run in JobRun.objects.all()] == [start.run_id]
    assert JobRunLog.objects.count() == 2


def test_a_record_that_is_found_while_it_is_being_written_is_left_alone(
    recorder: Recorder, database_away: DatabaseAway
) -> None:
    """It is our own run, and on its way: who waits for it is not passed over."""
    _, end, record = a_run()
    with database_away():
        future = recorder.run_ended(end, record)
        wait_until(lambda: recorder._being_written.ends, description="it is being written")
        recorder.run_found(record)
        assert recorder._unwritten == 1
    assert future.result(10) is True
    assert JobRun.objects.count() == 1


def test_what_is_no_record_is_refused_and_changes_nothing(recorder: Recorder) -> None:
    with pytest.raises(UnreadableRecord):
        recorder.run_found("no record")
    assert (recorder._unwritten, bool(recorder._batch)) == (0, False)
