"""The command line, and how long what it asks for will take."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import celery_side, variants
from benchmarks.variants import Database, Job, Variant

PARTS = ("drain", "celery", "dispatch", "fan-out", "door", "latency", "scope", "cost")
ROUNDS, QUICK_ROUNDS = 5, 3
JOBS = 6000
INSERTS = 3
"""One insert costs several times what a no-op costs: so many times fewer are queued."""

DRAIN_SECONDS, DISPATCH_SECONDS, LATENCY_SECONDS, COST_SECONDS, CELERY_SECONDS = 6, 14, 28, 40, 45
FAN_OUT_SECONDS, DOOR_SECONDS, PARKED_SECONDS, SCOPE_SECONDS = 12, 20, 50, 5
"""Of one drain; of one round of all dispatch kinds; of one round of latency; of all costs; of
finding Celery's fastest pool; of one round of fan-out; of one round at the door; of all about
parked jobs; of all about scopes. On two cores, to tell how long it will take.
"""


@dataclass(frozen=True)
class Options:
    """What is to be measured.

    Attributes:
        parts: Which of ``PARTS``.
        rounds: How often, interleaved.
        jobs: No-op jobs of one drain.
        drained: Variants of ours that are drained.
        write: Whether the table goes into the documentation.
    """

    parts: frozenset[str]
    rounds: int
    jobs: int
    drained: tuple[Variant, ...]
    write: bool

    def jobs_of(self, variant: Variant) -> int:
        """How many jobs a drain of this variant has."""
        return self.jobs if variant.job == "noop" else self.jobs // INSERTS

    def estimate(self) -> float:
        """Seconds that all of it will take, roughly."""
        drains = len(variants.round_of(list(self.drained))) + ("celery" in self.parts)
        scale = (2 + 4 * self.jobs / JOBS) / DRAIN_SECONDS
        return (
            (self.rounds * drains * DRAIN_SECONDS * scale if self.drained else 0)
            + self.rounds * DISPATCH_SECONDS * ("dispatch" in self.parts)
            + self.rounds * FAN_OUT_SECONDS * ("fan-out" in self.parts)
            + (self.rounds * DOOR_SECONDS + PARKED_SECONDS) * ("door" in self.parts)
            + self.rounds * LATENCY_SECONDS * ("latency" in self.parts)
            + SCOPE_SECONDS * ("scope" in self.parts)
            + COST_SECONDS * ("cost" in self.parts)
            + CELERY_SECONDS * ("celery" in self.parts)
        )


def parse(arguments: Sequence[str]) -> Options:
    """Read the command line; a wrong one ends the process with code 2."""
    parser = _parser()
    given = parser.parse_args(arguments)
    parts = frozenset(given.only or PARTS) - ({"celery"} if given.no_celery else set())
    narrowing = ("quick", "only", "no_celery", "job", "concurrency", "database")
    is_narrowed = any(getattr(given, name) for name in narrowing)
    if given.write and (is_narrowed or (given.rounds or ROUNDS) < ROUNDS):
        parser.error("--write needs all of it, in at least five rounds")
    return Options(
        parts=parts,
        rounds=given.rounds or (QUICK_ROUNDS if given.quick else ROUNDS),
        jobs=given.jobs,
        drained=tuple(_drained(parts, given)),
        write=given.write,
    )


def _drained(parts: frozenset[str], given: argparse.Namespace) -> list[Variant]:
    found: list[Variant] = []
    if "drain" in parts:
        job: Job | None = given.job or ("noop" if given.quick else None)
        concurrency = given.concurrency or (16 if given.quick else None)
        database: Database | None = given.database or ("postgres" if given.quick else None)
        found = variants.ours(
            (job,) if job else variants.JOBS,
            (concurrency,) if concurrency else variants.CONCURRENCIES,
            (database,) if database else variants.DATABASES,
        )
    if "celery" in parts:
        beside = variants.ours(("insert",), (celery_side.CONCURRENCY,), ("postgres",))
        found += [variant for variant in beside if variant not in found]
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure, and print one table."
    )
    parser.add_argument(
        "--only",
        type=_parts,
        metavar="PART,...",
        help=f"only these parts, of: {', '.join(PARTS)}",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="three rounds; of the drains only no-op, c16, PostgreSQL (unless chosen otherwise)",
    )
    parser.add_argument("--job", choices=variants.JOBS, help="only drains of this job")
    parser.add_argument("--concurrency", type=_positive, help="only drains at this concurrency")
    parser.add_argument("--database", choices=variants.DATABASES, help="only drains into this")
    parser.add_argument("--rounds", type=_positive, help="rounds of everything (default: 5)")
    parser.add_argument(
        "--jobs",
        type=_positive,
        default=JOBS,
        help="no-op jobs of one drain; inserts are a third of it (default: %(default)s)",
    )
    parser.add_argument("--no-celery", action="store_true", help="leave Celery out")
    parser.add_argument(
        "--write", action="store_true", help="put the table into docs/design/benchmarks.md"
    )
    return parser


def _parts(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in PARTS]:
        raise argparse.ArgumentTypeError(f"no such part: {', '.join(unknown)}")
    return names


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)
