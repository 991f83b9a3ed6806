"""The tables of a run: emptied before a measurement, counted after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import connections

from benchmarks.celery_side import RESULTS_TABLE

if TYPE_CHECKING:
    from benchmarks.variants import Database, Variant


def clear(database: Database) -> None:
    """Empty all tables, and let no measurement pay for the pages that the one before has left."""
    connection = connections[database]
    names = connection.introspection.table_names()
    mine = [name for name in names if name.startswith(("kumiko_", "bench_", RESULTS_TABLE))]
    if database == "postgres":
        execute(database, f"TRUNCATE {', '.join(mine)}")
        execute(database, "CHECKPOINT")
        return
    execute(database, "PRAGMA foreign_keys = OFF")
    for name in mine:
        execute(database, f"DELETE FROM {name}")
    execute(database, "PRAGMA wal_checkpoint(TRUNCATE)")


def execute(database: Database, statement: str) -> Any:
    """Run a statement of ours; give the first column of its first row, if it has any."""
    with connections[database].cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0] if cursor.description else None


def count_final_runs(database: Database) -> int:
    """Final completed runs in our history."""
    from kumiko_django.models import JobRun

    return JobRun.objects.using(database).filter(status="completed", final=True).count()


def count_celery_results() -> int:
    """Tasks that Celery has finished and recorded."""
    return int(
        execute("postgres", f"SELECT count(*) FROM {RESULTS_TABLE} WHERE status = 'SUCCESS'")
    )


def check_finished(variant: Variant, jobs: int) -> None:
    """Check that a side has done what it is measured for, exactly.

    Raises:
        RuntimeError: It has not.
    """
    for what, found in _finished(variant).items():
        if found != jobs:
            raise RuntimeError(f"{variant.name}: {found} {what}, not {jobs}")


def _finished(variant: Variant) -> dict[str, int]:
    from benchmarks.project.models import Row
    from kumiko_django.models import JobRun

    found: dict[str, int] = {}
    if variant.side == "ours":
        found["rows of the history"] = JobRun.objects.using(variant.database).count()
        found["final completed runs"] = count_final_runs(variant.database)
    if variant.side == "celery":
        found["successful results"] = count_celery_results()
    if variant.job == "insert":
        found["inserted rows"] = Row.objects.using(variant.database).count()
    return found
