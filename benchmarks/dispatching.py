"""Dispatching: jobs a second of one caller, against the raw queue's ``add`` and ``addBulk``."""

from __future__ import annotations

import os
import subprocess
import sys

import redis

from benchmarks.figures import Bound, Spread, ratios
from benchmarks.progress import Say
from benchmarks.report import Line

OURS, RAW = "kumiko-jobs-worker", "bench-raw"
KINDS = {
    "add": (RAW, 3000),
    "dispatch": (OURS, 3000),
    "adispatch": (OURS, 3000),
    "add-bulk": (RAW, 20_000),
    "dispatch-many": (OURS, 20_000),
}
"""Each kind with its queue and how many jobs are measured."""


def measure(rounds: int, client: redis.Redis, say: Say) -> list[Line]:
    """All kinds, interleaved."""
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for number in range(1, rounds + 1):
        for kind in KINDS:
            rates[kind].append(once(kind, client))
            say(f"round {number}: {kind} {rates[kind][-1]:,.0f}/s")
    return [
        _line("dispatch", rates["dispatch"], "Queue.add", rates["add"], Bound(0.9)),
        _line("adispatch", rates["adispatch"], "Queue.add", rates["add"], None),
        _line(
            "dispatch_many, 1,000 a call",
            rates["dispatch-many"],
            "Queue.addBulk",
            rates["add-bulk"],
            Bound(0.7),
        ),
    ]


def once(kind: str, client: redis.Redis) -> float:
    """Jobs a second of one of :data:`KINDS`, in a process of its own; Redis is emptied first.

    Raises:
        RuntimeError: Not all of them have arrived.
    """
    queue, count = KINDS[kind]
    client.flushall()
    command = [sys.executable, "-m", "benchmarks.sides.dispatch", kind, str(count)]
    environment = {**os.environ, "BENCH_DATABASE": "postgres"}
    answer = subprocess.run(
        command, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    waiting, wanted = int(client.llen(f"bull:{queue}:wait")), count + count // 10
    if waiting != wanted:
        raise RuntimeError(f"{kind}: {waiting} jobs are waiting, not {wanted}")
    return float(answer)


def _line(
    what: str, ours: list[float], beside: str, theirs: list[float], bound: Bound | None
) -> Line:
    ratio = Spread.of(ratios(ours, theirs))
    return Line(what, Spread.of(ours), "/s", beside, Spread.of(theirs), ratio, bound)
