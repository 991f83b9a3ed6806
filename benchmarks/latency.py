"""Latency: from the call of ``dispatch`` to the first line of the handler, at 50 jobs a second.

Async and sync handlers take turns in one stream. Both times are wall clock times of one machine;
the handler's is its result, so it is read from the history.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import redis

from benchmarks import processes, tables
from benchmarks.figures import Bound, Spread, quantile
from benchmarks.progress import Say
from benchmarks.report import Line
from benchmarks.variants import MODES, Mode, Variant

PER_SECOND = 50
SECONDS = 20
WARM_UP = 50
SETTLE_SECONDS = 30.0
SHARES = ((0.5, "p50", Bound(4, is_floor=False)), (0.99, "p99", Bound(20, is_floor=False)))

WORKER = Variant("ours", "noop", "async", 16, "postgres")


def measure(rounds: int, client: redis.Redis, say: Say) -> list[Line]:
    """Both modes, both shares."""
    found: dict[tuple[Mode, str], list[float]] = {}
    for number in range(1, rounds + 1):
        delays = _once(client)
        for mode in MODES:
            for share, name, _ in SHARES:
                value = quantile(delays[mode], share)
                found.setdefault((mode, name), []).append(value)
                say(f"round {number}: latency {mode} {name} {value:.1f} ms")
    return [
        Line(f"latency {name}, {mode}, 50 jobs/s", Spread.of(found[mode, name]), "ms", bound=bound)
        for mode in MODES
        for _, name, bound in SHARES
    ]


def _once(client: redis.Redis) -> dict[Mode, list[float]]:
    client.flushall()
    tables.clear(WORKER.database)
    with processes.worker(WORKER):
        _pace(WARM_UP)
        _wait(client, WARM_UP)
        tables.clear(WORKER.database)
        _pace(PER_SECOND * SECONDS)
        _wait(client, WARM_UP + PER_SECOND * SECONDS)
    return _delays()


def _pace(count: int) -> None:
    command = [sys.executable, "-m", "benchmarks.sides.pace", str(PER_SECOND), str(count)]
    subprocess.run(command, env=WORKER.environment(), check=True)


def _wait(client: redis.Redis, count: int) -> None:
    deadline = time.monotonic() + SETTLE_SECONDS
    while int(client.zcard(WORKER.completed_key)) < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{count} jobs were not done {SETTLE_SECONDS:g} s after the last")
        time.sleep(0.1)


def _delays() -> dict[Mode, list[float]]:
    """Milliseconds of each job."""
    from kumiko_django.models import JobRun

    delays: dict[Mode, list[float]] = {mode: [] for mode in MODES}
    runs = JobRun.objects.using(WORKER.database).filter(status="completed", final=True)
    columns: Any = runs.values_list("job_name", "payload", "result")
    for name, payload, began in columns:
        mode: Mode = "async" if name.endswith("async") else "sync"
        delays[mode].append((began - payload["sent"]) * 1000)
    expected = PER_SECOND * SECONDS // len(MODES)
    if {len(values) for values in delays.values()} != {expected}:
        raise RuntimeError(f"{ {m: len(v) for m, v in delays.items()} } runs, not {expected} each")
    return delays
