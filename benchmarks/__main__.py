"""``python -m benchmarks``: measure, print one table, and with ``--write`` put it into the docs.

The exit code is 0 also when a bound does not hold: this measures, it does not test.
"""

from __future__ import annotations

import sys
from pathlib import Path

import redis

from benchmarks import (
    cost,
    dispatching,
    door,
    drains,
    fan_out,
    latency,
    machine,
    options,
    parked,
    report,
    scope,
)
from benchmarks.options import Options
from benchmarks.progress import say
from benchmarks.report import Line
from benchmarks.services import services

PAGE = Path(__file__).resolve().parent.parent / "docs" / "design" / "benchmarks.md"


def main(arguments: list[str]) -> int:
    """Run what the command line asks for."""
    wanted = options.parse(arguments)
    say(f"about {max(1, round(wanted.estimate() / 60))} minutes")
    if busy := machine.busy():
        say(f"{busy}: the figures will be worse, and wider, than those of a machine at rest")
    with services() as valkey, valkey.client() as client:
        with_celery = "celery" in wanted.parts
        lines = measure(wanted, client)
        heading = machine.description(client, with_celery=with_celery)
    content = (
        f"{heading}\n{wanted.rounds} rounds; median (lowest to highest).\n\n{report.table(lines)}"
    )
    sys.stdout.write(f"{content}\n")
    if wanted.write:
        PAGE.write_text(report.replaced(PAGE.read_text(encoding="utf-8"), content), "utf-8")
        say(f"written to {PAGE}")
    return 0


def measure(wanted: Options, client: redis.Redis) -> list[Line]:
    """Each part in turn."""
    lines: list[Line] = []
    if wanted.drained:
        lines += drains.measure(wanted, client, say)
    if "dispatch" in wanted.parts:
        lines += dispatching.measure(wanted.rounds, client, say)
    if "fan-out" in wanted.parts:
        lines += fan_out.measure(wanted.rounds, client, say)
    if "door" in wanted.parts:
        lines += door.measure(wanted.rounds, client, say)
        lines += parked.measure(client, say)
    if "latency" in wanted.parts:
        lines += latency.measure(wanted.rounds, client, say)
    if "scope" in wanted.parts:
        lines += scope.measure(say)
    if "cost" in wanted.parts:
        lines += cost.measure(client, say)
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
