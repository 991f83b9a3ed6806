"""What a run costs PostgreSQL and Redis: statements, commits, bytes. Counted, not timed.

A drain of its own with the server's statement log switched on, so no rate is taken from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import redis

from benchmarks import tables
from benchmarks.drain import SLOW_POLL_SECONDS, drain
from benchmarks.figures import Spread
from benchmarks.progress import Say
from benchmarks.report import Line
from benchmarks.variants import Variant

JOBS = 2000
_SCRIPTS = ("eval", "evalsha", "fcall")
_STATEMENT = re.compile(rb" LOG:  (?:statement|execute [^:]+): (?!SELECT pg_current_wal)")

MEASURED = (
    Variant("ours", "noop", "async", 16, "postgres"),
    Variant("ours", "insert", "sync", 16, "postgres"),
)


@dataclass(frozen=True)
class Cost:
    """For one run.

    Attributes:
        statements: Statements that PostgreSQL executed, BEGIN and COMMIT among them.
        wal_bytes: Bytes of write-ahead log.
        scripts: Calls of a script in Redis.
        redis_in: Bytes that Redis received.
        redis_out: Bytes that Redis sent.
    """

    statements: float
    wal_bytes: float
    scripts: float
    redis_in: float
    redis_out: float


UNITS = {
    "statements": ("statements in PostgreSQL a run", ""),
    "wal_bytes": ("write-ahead log a run", "bytes"),
    "scripts": ("scripts in Redis a run", ""),
    "redis_in": ("sent to Redis a run", "bytes"),
    "redis_out": ("received from Redis a run", "bytes"),
}


def measure(client: redis.Redis, say: Say) -> list[Line]:
    """Ours beside the raw worker, without and with an insert."""
    lines: list[Line] = []
    with _statements_logged():
        for variant in MEASURED:
            found, raw = _once(variant, client), _once(variant.raw(), client)
            say(f"cost of {variant.label}: {found}; raw: {raw}")
            lines += [_line(variant, name, found, raw) for name in UNITS]
    return lines


def _line(variant: Variant, name: str, found: Cost, raw: Cost) -> Line:
    what, unit = UNITS[name]
    ours, theirs = (Spread.of([getattr(cost, name)]) for cost in (found, raw))
    return Line(f"{what}: {variant.label}", ours, unit, "raw bullmq", theirs)


def _once(variant: Variant, client: redis.Redis) -> Cost:
    looks: list[Cost] = []
    drained = drain(
        variant,
        JOBS,
        client,
        at_ends=lambda: looks.append(_look(client)),
        poll=SLOW_POLL_SECONDS,
    )
    begin, end = looks
    return Cost(
        *(
            (getattr(end, field.name) - getattr(begin, field.name)) / drained.jobs
            for field in fields(Cost)
        )
    )


def _look(client: redis.Redis) -> Cost:
    """The counters of both servers, now."""
    wal = tables.execute("postgres", "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")
    log = Path(tables.execute("postgres", "SHOW data_directory")) / "log"
    stats: Any = client.info("stats")
    commands: Any = client.info("commandstats")
    return Cost(
        statements=len(_STATEMENT.findall(log.read_bytes())),
        wal_bytes=float(wal),
        scripts=sum(commands.get(f"cmdstat_{name}", {}).get("calls", 0) for name in _SCRIPTS),
        redis_in=stats["total_net_input_bytes"],
        redis_out=stats["total_net_output_bytes"],
    )


@contextmanager
def _statements_logged() -> Iterator[None]:
    _configure("log_statement = 'all'", "log_min_messages = 'log'")
    try:
        yield
    finally:
        _configure("log_statement = 'none'", "log_min_messages = 'fatal'")


def _configure(*settings: str) -> None:
    for setting in settings:
        tables.execute("postgres", f"ALTER SYSTEM SET {setting}")
    tables.execute("postgres", "SELECT pg_reload_conf()")
