"""Fan-out: a job for each of 10,000 tenants, by its wrapper, against adding them one by one.

The wrapper is run by a worker that does one thing at a time, so that no child takes part in it; the
run's duration counts, from the question for the tenants to the last child. One by one is a caller
that dispatches the same job for each tenant, and one that adds jobs to the raw queue.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import redis

from benchmarks import dispatching, processes, tables
from benchmarks.figures import Bound, Spread, ratios
from benchmarks.progress import Say
from benchmarks.report import Line
from benchmarks.variants import Variant

TENANTS = 10_000
PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.05
WORKER = Variant("ours", "noop", "async", 1, "postgres")
WRAPPER = "_perTenant:bench:job:noop-each-tenant"


def measure(rounds: int, client: redis.Redis, say: Say, *, tenants: int = TENANTS) -> list[Line]:
    """All ways, interleaved."""
    fanned: list[float] = []
    single: dict[str, list[float]] = {"dispatch": [], "Queue.add": []}
    with _tenants(tenants):
        for number in range(1, rounds + 1):
            single["dispatch"].append(_one_by_one(client, tenants))
            fanned.append(_fan_out(client, tenants))
            single["Queue.add"].append(dispatching.once("add", client))
            found = ", ".join(f"{name} {rates[-1]:,.0f}/s" for name, rates in single.items())
            say(f"round {number}: fan-out {fanned[-1]:,.0f}/s, one by one: {found}")
    return [
        Line(
            f"fan-out to {tenants:,} tenants", Spread.of(fanned), "/s",
            f"{name}, one by one", Spread.of(rates), Spread.of(ratios(fanned, rates)), Bound(3),
        )
        for name, rates in single.items()
    ]  # fmt: skip


@contextlib.contextmanager
def _tenants(count: int) -> Iterator[None]:
    """Turn tenancy on, for the processes that are started in the block."""
    os.environ["BENCH_TENANTS"] = str(count)
    try:
        yield
    finally:
        del os.environ["BENCH_TENANTS"]


def _dispatch(kind: str) -> float:
    command = [sys.executable, "-m", "benchmarks.sides.fan_out", kind]
    answer = subprocess.run(
        command, env=WORKER.environment(), check=True, stdout=subprocess.PIPE, text=True
    )
    return float(answer.stdout)


def _one_by_one(client: redis.Redis, tenants: int) -> float:
    client.flushall()
    rate = _dispatch("one-by-one")
    if (waiting := int(client.llen("bull:kumiko-jobs-worker:wait"))) != tenants:
        raise RuntimeError(f"{waiting} jobs are waiting, not {tenants}")
    return rate


def _fan_out(client: redis.Redis, tenants: int) -> float:
    client.flushall()
    tables.clear(WORKER.database)
    _dispatch("wrapper")
    with processes.worker(WORKER):
        return tenants / _seconds_of_wrapper(tenants)


def _seconds_of_wrapper(tenants: int) -> float:
    from kumiko_django.models import JobRun

    runs = JobRun.objects.using(WORKER.database).filter(job_name=WRAPPER, final=True)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (run := runs.first()) is None:
        if time.monotonic() > deadline:
            raise RuntimeError(f"no fan-out in {PATIENCE_SECONDS:g} s")
        time.sleep(POLL_SECONDS)
    nothing_else = dict.fromkeys(("parked", "skipped", "already_there"), 0)
    expected = {"planned": tenants, "enqueued": tenants, **nothing_else}
    if run.result != expected or not run.duration_ms:
        raise RuntimeError(f"the fan-out came to {run.status}, {run.result}, not {expected}")
    return run.duration_ms / 1000
