"""Which ways to work a queue off are compared, and the processes of each."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from itertools import product
from typing import Literal

from benchmarks import celery_side

Side = Literal["ours", "raw", "celery"]
Job = Literal["noop", "insert"]
Mode = Literal["sync", "async"]
Database = Literal["postgres", "sqlite"]

JOBS: tuple[Job, ...] = ("noop", "insert")
MODES: tuple[Mode, ...] = ("async", "sync")
CONCURRENCIES = (5, 16)
DATABASES: tuple[Database, ...] = ("postgres", "sqlite")

_WORDS = {"noop": "no-op", "insert": "one insert", "postgres": "PostgreSQL", "sqlite": "SQLite"}


@dataclass(frozen=True)
class Variant:
    """One way to work a queue off.

    Attributes:
        side: Whose worker.
        job: ``noop`` or ``insert``.
        mode: Kind of handler. The raw worker's no-op is ``async`` and its insert ``sync``, in
            threads; Celery's tasks are ``sync``.
        concurrency: Jobs at a time.
        database: Where history and rows go.
        pool: Of Celery only: what its tasks run in, one of ``celery_side.POOLS``.
    """

    side: Side
    job: Job
    mode: Mode
    concurrency: int
    database: Database
    pool: str = ""

    @property
    def label(self) -> str:
        """What the table calls it."""
        job, database = _WORDS[self.job], _WORDS[self.database]
        return f"{job}, {self.mode}, c{self.concurrency}, {database}"

    @property
    def name(self) -> str:
        """What a progress line calls it."""
        return f"{self.side} {self.pool} {self.label}".replace("  ", " ")

    @property
    def completed_key(self) -> str:
        """The set of the jobs that a BullMQ worker has finished."""
        queue = "kumiko-jobs-worker" if self.side == "ours" else "bench-raw"
        return f"bull:{queue}:completed"

    def raw(self) -> Variant:
        """The raw worker that this is compared with."""
        if self.job == "noop":  # it writes nothing: one for both databases
            return Variant("raw", "noop", "async", self.concurrency, "postgres")
        return Variant("raw", "insert", "sync", self.concurrency, self.database)

    def worker_command(self) -> list[str]:
        """The process that works."""
        if self.side == "celery":
            return celery_side.worker_command(self.pool)
        command = [sys.executable, "-m"]
        if self.side == "raw":
            return [*command, "benchmarks.sides.raw_worker", self.job, str(self.concurrency)]
        options = ["--lane", "worker", "--concurrency", str(self.concurrency), "-v", "0"]
        return [*command, "django", "runjobs", *options]

    def fill_command(self, jobs: int) -> list[str]:
        """The process that fills the queue."""
        if self.side == "celery":
            return celery_side.fill_command(jobs)
        script = [sys.executable, "-m", "benchmarks.sides.fill"]
        return [*script, self.side, f"{self.job}-{self.mode}", str(jobs)]

    def environment(self) -> dict[str, str]:
        """The environment of both."""
        celery = {"BENCH_CELERY": "1"} if self.side == "celery" else {}
        return {**os.environ, "BENCH_DATABASE": self.database, **celery}


def ours(
    jobs: tuple[Job, ...] = JOBS,
    concurrencies: tuple[int, ...] = CONCURRENCIES,
    databases: tuple[Database, ...] = DATABASES,
) -> list[Variant]:
    """Every variant of ours in the given dimensions, in the order of the table."""
    return [
        Variant("ours", job, mode, concurrency, database)
        for database, job, concurrency, mode in product(databases, jobs, concurrencies, MODES)
    ]


def round_of(variants: list[Variant], celery: Variant | None = None) -> list[Variant]:
    """One round: each variant of ours next to the raw worker that it is compared with."""
    order: list[Variant] = []
    for variant in variants:
        if variant.raw() not in order:
            order.append(variant.raw())
        order.append(variant)
        if celery and is_beside(variant, celery) and celery not in order:
            order.append(celery)
    return order


def is_beside(variant: Variant, celery: Variant) -> bool:
    """Whether a variant of ours does what Celery does."""
    return (variant.job, variant.concurrency, variant.database) == (
        celery.job,
        celery.concurrency,
        celery.database,
    )
