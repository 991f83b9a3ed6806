"""A tenant's rows: what the scope adds to a SELECT by an indexed key."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from benchmarks.figures import Bound, Spread, ratios
from benchmarks.progress import Say
from benchmarks.report import Line

ROUNDS = 9
MOST = 1.15
"""Issue 5: how many times longer it may take than the plain one."""


def measure(say: Say) -> list[Line]:
    """Beside a plain model, and beside one that is filtered by hand."""
    command = [sys.executable, "-m", "benchmarks.sides.scope", str(ROUNDS)]
    environment = {**os.environ, "BENCH_DATABASE": "postgres"}
    answer = subprocess.run(
        command, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    plain, by_hand, scoped = (list(column) for column in zip(*json.loads(answer), strict=True))
    for number, figures in enumerate(zip(plain, by_hand, scoped, strict=True), 1):
        shown = ", ".join(f"{figure:.0f} us" for figure in figures)
        say(f"round {number}: plain, by hand, scoped: {shown}")
    what, ours = "SELECT by key in a scope", Spread.of(scoped)
    return [
        Line(
            what, ours, "us", "plain", Spread.of(plain), Spread.of(ratios(scoped, plain)),
            Bound(MOST, is_floor=False),
        ),
        Line(
            what, ours, "us", "filtered by hand", Spread.of(by_hand),
            Spread.of(ratios(scoped, by_hand)),
        ),
    ]  # fmt: skip
