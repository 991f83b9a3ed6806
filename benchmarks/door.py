"""The door: what it costs behind 100,000 waiting jobs of others, against an empty queue."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict

import redis

from benchmarks.figures import Bound, Spread, ratios
from benchmarks.progress import Say
from benchmarks.report import Line

WAITING, COUNT = 100_000, 1_000
NAMES = {
    "skip": "dispatch with skip",
    "replace": "dispatch with replace",
    "cap": "dispatch over max_per_tenant",
    "hand-over": "hand-over of a sequence",
}
MOST = 1.5
"""Issue 4: how many times longer it may take."""


def measure(rounds: int, client: redis.Redis, say: Say) -> list[Line]:
    """Times of all kinds, alone and behind the others, in the same process one after the other."""
    alone: dict[str, list[float]] = defaultdict(list)
    behind: dict[str, list[float]] = defaultdict(list)
    for number in range(1, rounds + 1):
        for kind, (first, second) in _once(client).items():
            alone[kind].append(1000 / first)
            behind[kind].append(1000 / second)
            say(f"round {number}: {kind} {first:,.0f}/s alone, {second:,.0f}/s behind {WAITING:,}")
    return [
        Line(
            f"{what} behind {WAITING:,} jobs", Spread.of(behind[kind]), "ms",
            "behind none", Spread.of(alone[kind]),
            Spread.of(ratios(behind[kind], alone[kind])), Bound(MOST, is_floor=False),
        )
        for kind, what in NAMES.items()
    ]  # fmt: skip


def _once(client: redis.Redis) -> dict[str, tuple[float, float]]:
    client.flushall()
    command = [sys.executable, "-m", "benchmarks.sides.door", str(WAITING), str(COUNT)]
    environment = {**os.environ, "BENCH_DATABASE": "postgres"}
    answer = subprocess.run(
        command, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    rates: dict[str, tuple[float, float]] = json.loads(answer)
    if int(client.llen("bull:kumiko-jobs-worker:wait")) < WAITING:
        raise RuntimeError("the other jobs do not wait")
    return rates
