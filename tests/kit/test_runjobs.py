"""The handle on a real worker process: ready, signals, exit codes, and a report when it hangs."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.helpers.fixtures import RunJobsFactory
from tests.helpers.processes import RunJobs
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.once


def test_a_worker_is_ready_and_ends_when_asked(runjobs: RunJobsFactory) -> None:
    worker = runjobs("worker", concurrency=2, grace=1)
    assert worker.running
    assert "consuming lane worker" in worker.output()
    worker.terminate()
    assert worker.wait() == 0, worker.output()


def test_a_process_for_all_lanes_is_ready_when_both_are_consumed(runjobs: RunJobsFactory) -> None:
    worker = runjobs("all")
    assert "consuming lane api" in worker.output()
    assert "consuming lane worker" in worker.output()


def test_a_process_that_does_not_start_is_told_with_its_output(runjobs: RunJobsFactory) -> None:
    with pytest.raises(AssertionError, match=r"(?s)ended with code 2, not ready.*nonsense"):
        runjobs("worker", "--nonsense")


def test_a_process_that_hangs_shows_its_threads(runjobs: RunJobsFactory) -> None:
    worker = runjobs("worker")
    worker.freeze()
    with pytest.raises(AssertionError, match=r"(?s)still running after 0.2 s.*most recent call"):
        worker.wait(timeout=0.2)


def test_a_killed_process_is_gone(runjobs: RunJobsFactory) -> None:
    worker = runjobs("worker")
    worker.kill()
    assert worker.exit_code == -signal.SIGKILL
    with pytest.raises(AssertionError, match="no SIGTERM for it"):
        worker.terminate()


@pytest.mark.django_db(transaction=True)
def test_closing_ends_a_frozen_process(tmp_path: Path) -> None:
    worker = RunJobs("worker", tmp_path / "log").wait_ready()
    worker.freeze()
    worker.close()
    wait_until(lambda: not worker.running, description="the process has ended")
    assert worker.exit_code == -signal.SIGKILL
