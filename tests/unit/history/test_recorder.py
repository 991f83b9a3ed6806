"""The recorder: many events in one commit, ends waited for, nothing lost when it closes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from django.db import router

from kumiko_django.history import recorder as recorder_module
from kumiko_django.history.models import JobRun, JobRunLog
from kumiko_django.history.recorder import Recorder
from tests.helpers.waiting import wait_until
from tests.unit.history.events import ended, line, started

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    opened = Recorder()
    opened.open()
    yield opened
    opened.close(5)


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What has been written, batch by batch."""
    written: list[Any] = []
    write: Callable[..., Any] = getattr(recorder_module, "write")  # noqa: B009

    def spy(alias: str, batch: Any) -> Any:
        result = write(alias, batch)
        written.append(batch)
        return result

    monkeypatch.setattr(recorder_module, "write", spy)
    return written


def test_a_start_is_on_record_soon_and_not_at_once(recorder: Recorder, batches: list[Any]) -> None:
    """design 9: with the next group, at most 100 ms later."""
    events = [started(f"job-{n}") for n in range(5)]
    began = time.monotonic()
    for event in events:
        recorder.run_started(event)
    wait_until(lambda: JobRun.objects.count() == 5, description="the starts are on record")
    took = time.monotonic() - began
    assert 0.09 < took < 1.0, f"{took:.3f} s"
    wait_until(lambda: batches, description="the write has returned")
    assert [len(batch.starts) for batch in batches] == [5], "one commit for all"
    assert JobRun.objects.get(queue_job_id="job-3").status == "running"


def test_a_short_run_is_written_once_with_its_end(recorder: Recorder, batches: list[Any]) -> None:
    event = started()
    recorder.run_started(event)
    recorder.log_lines(event.run_id, [line(1), line(2)])
    recorder.run_progress(event.run_id, {"done": 1})
    assert recorder.run_ended(ended(event.run_id, progress={"done": 2})).result(5) is True
    (batch,) = batches
    assert (len(batch.starts), len(batch.ends), batch.progress) == (1, 1, {})
    assert len(list(batch.log_lines())) == 2
    assert JobRun.objects.get().progress == {"done": 2}
    assert JobRunLog.objects.count() == 2


def test_the_ends_of_many_runs_share_commits(recorder: Recorder, batches: list[Any]) -> None:
    """design 9: group commit. While one batch is written the next one gathers."""
    futures: list[Future[bool]] = []
    guard = threading.Lock()

    def run(first: int) -> None:
        for number in range(first, first + 50):
            event = started(f"job-{number}")
            recorder.run_started(event)
            future = recorder.run_ended(ended(event.run_id))
            with guard:
                futures.append(future)

    threads = [threading.Thread(target=run, args=(first,)) for first in (0, 50, 100, 150)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [future.result(10) for future in futures] == [True] * 200
    assert JobRun.objects.filter(status="completed").count() == 200
    assert len(batches) < 100, "many ends in a commit"


def test_lines_and_progress_are_stored_while_the_run_lives(recorder: Recorder) -> None:
    """P77: what a run logs can be read before its end."""
    event = started()
    recorder.run_started(event)
    recorder.log_lines(event.run_id, [line(1, "first")])
    recorder.run_progress(event.run_id, {"done": 1, "total": 9})
    wait_until(lambda: JobRunLog.objects.exists(), description="the line is stored", timeout=3)
    run = JobRun.objects.get()
    assert (run.status, run.progress) == ("running", {"done": 1, "total": 9})
    recorder.log_lines(event.run_id, [line(2, "second")])
    assert recorder.run_ended(ended(event.run_id)).result(5)
    assert [entry.message for entry in run.logs.all()] == ["first", "second"]


def test_closing_writes_what_is_left() -> None:
    recorder = Recorder()
    recorder.open()
    event = started()
    recorder.run_started(event)
    recorder.log_lines(event.run_id, [line(1)])
    assert recorder.close(5) is True
    assert (JobRun.objects.count(), JobRunLog.objects.count()) == (1, 1)


def test_whoever_comes_after_closing_does_not_wait() -> None:
    recorder = Recorder()
    recorder.open()
    recorder.close(5)
    future = recorder.run_ended(ended(started().run_id))
    assert isinstance(future.exception(1), RuntimeError)


def test_an_idle_recorder_closes_at_once() -> None:
    recorder = Recorder()
    recorder.open()
    began = time.monotonic()
    assert recorder.close(5) is True
    assert time.monotonic() - began < 1


def test_whoever_no_longer_waits_does_not_stop_the_recorder(recorder: Recorder) -> None:
    """A cancelled run leaves a cancelled future; setting it would have ended the thread."""
    first, second = started("first"), started("second")
    recorder.run_started(first)
    recorder.run_ended(ended(first.run_id)).cancel()
    recorder.run_started(second)
    assert recorder.run_ended(ended(second.run_id)).result(5) is True
    assert JobRun.objects.filter(status="completed").count() == 2


def test_a_fault_while_writing_is_told_and_the_recorder_goes_on(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A router of the host that raises must not leave every later run waiting for ever."""
    find: Callable[..., str] = router.db_for_write
    faults = [RuntimeError("a router's fault")]

    def faulty(*args: Any, **hints: Any) -> str:
        if faults:
            raise faults.pop()
        return find(*args, **hints)

    monkeypatch.setattr(router, "db_for_write", faulty)
    first, second = started("first"), started("second")
    recorder.run_started(first)
    with (
        caplog.at_level(logging.ERROR, "kumiko_django.history"),
        pytest.raises(RuntimeError, match="router's fault"),
    ):
        recorder.run_ended(ended(first.run_id)).result(5)
    assert "The history of 1 runs could not be written" in caplog.text
    recorder.run_started(second)
    assert recorder.run_ended(ended(second.run_id)).result(5) is True


def test_what_is_flushed_is_on_record_at_once(recorder: Recorder) -> None:
    """A wrapper's run is there before a child names it, long before a start is due."""
    event = started("wrapper")
    recorder.run_started(event)
    recorder.flush().result(5)
    assert JobRun.objects.get().status == "running"
    recorder.flush().result(5)  # nothing to write
    recorder.run_ended(ended(event.run_id)).result(5)
    assert JobRun.objects.get().status == "completed"


def test_a_flush_that_cannot_be_written_does_not_hang(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits goes on; the failure is the record's."""

    def breaks(alias: str, batch: Any) -> Any:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(recorder_module, "write", breaks)
    recorder.run_started(started())
    recorder.flush().result(5)
    assert not JobRun.objects.exists()
