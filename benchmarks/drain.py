"""Drain: a full queue, then a worker; the rate between 10 % and 100 % of the jobs.

The first tenth is left out, so that no side pays for its start.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil
import redis

from benchmarks import figures, processes, tables
from benchmarks.figures import Moment
from benchmarks.loops import LOOP
from benchmarks.variants import Variant

POLL_SECONDS = 0.01
SLOW_POLL_SECONDS = 0.05
"""For Celery, whose progress is asked of PostgreSQL, and where every command to Redis counts."""
PATIENCE_SECONDS = 120.0
SKIPPED_SHARE = 0.1

Watch = Callable[[], None]


@dataclass(frozen=True)
class Drained:
    """What one drain came to.

    Attributes:
        rate: Jobs a second in the steady state.
        cpu: CPU seconds of the worker for 1,000 jobs, there too.
        memory: Peak resident memory of the worker in bytes.
        jobs: Jobs of the steady state.
    """

    rate: float
    cpu: float
    memory: int
    jobs: int


def drain(
    variant: Variant,
    jobs: int,
    client: redis.Redis,
    *,
    at_ends: Watch = lambda: None,
    poll: float = POLL_SECONDS,
) -> Drained:
    """Measure once.

    Args:
        variant: What is measured.
        jobs: How many jobs are queued.
        client: The Redis, which is emptied first, as the tables are.
        at_ends: Called at both ends of the steady state.
        poll: Seconds between two looks at the queue.

    Raises:
        RuntimeError: A process failed, not exactly ``jobs`` jobs are on record, or the worker has
            another event loop than it should.
    """
    client.flushall()
    tables.clear(variant.database)
    subprocess.run(variant.fill_command(jobs), env=variant.environment(), check=True)
    with processes.worker(variant) as process:
        begin, end = watch(process, progress_of(variant, client), jobs, at_ends, poll)
        memory = processes.peak_memory(process)
        if variant.side != "celery" and (loop := processes.loop_of(process)) != LOOP:
            raise RuntimeError(f"{variant.name} runs on {loop}, not on {LOOP}")
    tables.check_finished(variant, jobs)
    rate, cpu = figures.rate(begin, end), figures.cpu_per_thousand(begin, end)
    return Drained(rate, cpu, memory, end.done - begin.done)


@dataclass(frozen=True)
class Progress:
    """How many jobs a worker has finished.

    Attributes:
        look: Cheap, asked again and again: the jobs that the queue has as completed.
        recorded: Asked at both ends of the steady state: those whose record is written too. A side
            that tells the queue first and writes later is measured with its writing.
    """

    look: Callable[[], int]
    recorded: Callable[[], int]


def progress_of(variant: Variant, client: redis.Redis) -> Progress:
    """Whom to ask."""

    def completed() -> int:
        return int(client.zcard(variant.completed_key))

    if variant.side == "celery":
        return Progress(tables.count_celery_results, tables.count_celery_results)
    if variant.side == "raw":
        return Progress(completed, completed)
    return Progress(completed, lambda: min(completed(), tables.count_final_runs(variant.database)))


def watch(
    process: psutil.Process, progress: Progress, jobs: int, at_ends: Watch, poll: float
) -> tuple[Moment, Moment]:
    """Look until all is done; give the two ends of the steady state.

    Raises:
        RuntimeError: The worker ended, or was not done after two minutes.
    """
    begin: Moment | None = None
    deadline = time.monotonic() + PATIENCE_SECONDS
    done = 0
    while time.monotonic() < deadline:
        done = progress.look()
        if begin is None and done >= jobs * SKIPPED_SHARE:
            begin = _moment(process, progress.recorded())
            at_ends()
        if begin is not None and done >= jobs and (recorded := progress.recorded()) >= jobs:
            end = _moment(process, recorded)
            at_ends()
            return begin, end
        if not processes.is_alive(process):
            raise RuntimeError(f"the worker ended after {done} of {jobs} jobs")
        time.sleep(poll)
    raise RuntimeError(f"the worker did {done} of {jobs} jobs in {PATIENCE_SECONDS:g} s")


def _moment(process: psutil.Process, done: int) -> Moment:
    return Moment(time.monotonic(), done, processes.cpu_seconds(process))
