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

WAITING, COUNT = 100_000, 600
NAMES = {
    "skip": "dispatch with skip",
    "replace": "dispatch with replace",
    "cap": "dispatch over max_per_tenant",
    "hand-over": "hand-over of a sequence",
}
SIDES = ("alone", "behind")
MOST = 1.5
"""Issue 4: how many times longer it may take."""


def measure(
    rounds: int, client: redis.Redis, say: Say, *, waiting: int = WAITING, count: int = COUNT
) -> list[Line]:
    """Times of all kinds, alone and behind the others; the sides take turns in being the first."""
    alone: dict[str, list[float]] = defaultdict(list)
    behind: dict[str, list[float]] = defaultdict(list)
    for number in range(1, rounds + 1):
        rates = _once(SIDES[(number - 1) % len(SIDES)], client, waiting, count)
        for kind in NAMES:
            first, second = rates["alone"][kind], rates["behind"][kind]
            alone[kind].append(1000 / first)
            behind[kind].append(1000 / second)
            say(f"round {number}: {kind} {first:,.0f}/s alone, {second:,.0f}/s behind {waiting:,}")
    return [
        Line(
            f"{what} behind {waiting:,} jobs", Spread.of(behind[kind]), "ms",
            "behind none", Spread.of(alone[kind]),
            Spread.of(ratios(behind[kind], alone[kind])), Bound(MOST, is_floor=False),
        )
        for kind, what in NAMES.items()
    ]  # fmt: skip


def _once(first: str, client: redis.Redis, waiting: int, count: int) -> dict[str, dict[str, float]]:
    command = [sys.executable, "-m", "benchmarks.sides.door", first, str(waiting), str(count)]
    environment = {**os.environ, "BENCH_DATABASE": "postgres"}
    answer = subprocess.run(
        command, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    rates: dict[str, dict[str, float]] = json.loads(answer)
    others, last_is_behind = int(client.llen("bull:kumiko-jobs-worker:wait")), first == "alone"
    if (others >= waiting) != last_is_behind:
        raise RuntimeError(f"{others:,} jobs wait at the end of the round that began {first}")
    return rates
