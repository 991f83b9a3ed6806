"""The steady state of a drain, watched in real processes (design 9)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from benchmarks.drain import Progress, watch

pytestmark = pytest.mark.once


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing until it is ended."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with process:
        yield process
        process.kill()


def test_the_steady_state_begins_at_a_tenth_and_ends_with_the_last_job(
    sleeper: subprocess.Popen[bytes],
) -> None:
    counts, looks = iter([0, 7, 12, 60, 99, 100]), list[int]()
    progress = Progress(lambda: next(counts), iter([12, 100]).__next__)

    begin, end = watch(psutil.Process(sleeper.pid), progress, 100, lambda: looks.append(1), 0.001)

    assert (begin.done, end.done) == (12, 100)
    assert begin.at < end.at
    assert len(looks) == 2


def test_records_that_are_written_after_the_queue_was_told_belong_to_the_time(
    sleeper: subprocess.Popen[bytes],
) -> None:
    counts, recorded = iter([15, 100, 100, 100]), iter([4, 80, 95, 100])
    progress = Progress(counts.__next__, recorded.__next__)

    begin, end = watch(psutil.Process(sleeper.pid), progress, 100, lambda: None, 0.001)

    assert (begin.done, end.done) == (4, 100)
    assert next(counts, None) is None


def test_a_worker_that_ends_before_its_jobs_is_an_error(sleeper: subprocess.Popen[bytes]) -> None:
    process = psutil.Process(sleeper.pid)
    sleeper.kill()

    with pytest.raises(RuntimeError, match="ended after 3 of 100 jobs"):
        watch(process, Progress(lambda: 3, lambda: 3), 100, lambda: None, 0.001)
