"""Parked jobs: what 100,000 of them make a worker ask of Redis while none of them may run.

The first of a sequence runs all the time, so that the others stay parked. Every command that the
server executes counts, also those inside a script: locks, leases, stalled checks and the sweeper of
a worker that has nothing else to do. Counted, not timed.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import redis

from benchmarks import processes, tables
from benchmarks.figures import Bound, Spread
from benchmarks.progress import Say
from benchmarks.report import Line
from benchmarks.variants import Variant

PARKED = 100_000
SECONDS = 30.0
"""Two passes of the sweeper."""
MOST = 10.0
"""Issue 4: commands a second."""
PATIENCE_SECONDS, POLL_SECONDS = 60.0, 0.1
WORKER = Variant("ours", "noop", "async", 16, "postgres")
QUEUE = "bull:kumiko-jobs-worker"


def measure(
    client: redis.Redis, say: Say, *, parked: int = PARKED, seconds: float = SECONDS
) -> list[Line]:
    """Commands a second while they wait."""
    per_second = _once(client, parked, seconds)
    say(f"{per_second:.1f} commands/s with {parked:,} parked jobs")
    what = f"commands in Redis, {parked:,} jobs parked"
    return [Line(what, Spread.of([per_second]), "/s", bound=Bound(MOST, is_floor=False))]


def _once(client: redis.Redis, parked: int, seconds: float) -> float:
    client.flushall()
    tables.clear(WORKER.database)
    _fill(parked + 1)
    with processes.worker(WORKER) as worker:
        _wait_for_holder(client, parked)
        time.sleep(1)  # its start is over
        before, began = _commands(client), time.monotonic()
        time.sleep(seconds)
        done = _commands(client) - before
        per_second = done / (time.monotonic() - began)
        _wait_for_holder(client, parked)  # as before
        worker.kill()  # with what it holds, which is not to be waited for
    return per_second


def _fill(jobs: int) -> None:
    command = [sys.executable, "-m", "benchmarks.sides.fill", "ours", "door-hold", str(jobs)]
    subprocess.run(command, env=WORKER.environment(), check=True)


def _wait_for_holder(client: redis.Redis, parked: int) -> None:
    """One runs, and all others are parked: delayed, and in the list of their key."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (found := _state(client)) != (1, 0, parked):
        if time.monotonic() > deadline:
            raise RuntimeError(f"{found} active, waiting, delayed jobs, not {(1, 0, parked)}")
        time.sleep(POLL_SECONDS)


def _state(client: redis.Redis) -> tuple[int, int, int]:
    return (
        int(client.llen(f"{QUEUE}:active")),
        int(client.llen(f"{QUEUE}:wait")),
        int(client.zcard(f"{QUEUE}:delayed")),
    )


def _commands(client: redis.Redis) -> int:
    """Commands that the server has executed, but for these questions."""
    stats: Any = client.info("commandstats")
    return sum(row["calls"] for name, row in stats.items() if name != "cmdstat_info")
