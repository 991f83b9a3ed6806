"""The end of the demo: a table of the runs, a log, an error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final
from uuid import UUID

from example_project.demo.checks import Check
from example_project.demo.console import Console
from example_project.demo.processes import DemoFailed
from example_project.demo.runs import Run
from example_project.demo.story import IMPORT

HEADER: Final = ("job", "tenant", "lane", "attempt", "status", "duration")
LOG_LINES: Final = 8
TRACEBACK_LINES: Final = 6


def table(runs: Iterable[Run]) -> list[str]:
    """The runs as lines of a table, with its head; grouped by job, attempts in order."""
    rows = [
        (
            run.job,
            run.tenant,
            run.lane,
            f"{run.attempt} of {run.max_attempts}",
            run.status + (", for good" if run.status == "failed" and run.final else ""),
            "" if run.duration_ms is None else f"{run.duration_ms / 1000:.2f} s",
        )
        for run in sorted(runs, key=lambda run: (run.job, run.tenant, run.job_id, run.id))
    ]
    widths = [max(len(row[column]) for row in [HEADER, *rows]) for column in range(len(HEADER))]
    rule = tuple("-" * width for width in widths)
    return [_cells(row, widths) for row in [HEADER, rule, *rows]]


def _cells(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
    return "  ".join([*cells, row[-1].rjust(widths[-1])])


def show_table(console: Console, runs: Iterable[Run]) -> None:
    """Print the table."""
    console.title("The runs")
    head, rule, *rows = table(runs)
    console.line(f"  {head}", "bold")
    console.line(f"  {rule}", "dim")
    for row in rows:
        console.line(f"  {row}", "bad" if " failed" in row else None)


def show_log(console: Console, runs: Iterable[Run]) -> None:
    """Print the beginning and the end of an import's log."""
    from kumiko_django.models import JobRunLog

    run = next((run for run in runs if run.job == IMPORT), None)
    if run is None:
        return
    console.title(f"The log of {run.job} for {run.tenant}")
    lines = list(JobRunLog.objects.filter(run=UUID(run.id)).order_by("number"))
    left_out = len(lines) - LOG_LINES
    for line in lines[: LOG_LINES - 1]:
        console.line(_log_line(line.number, line.level, line.message, line.data))
    if left_out > 0:
        console.line(f"       ... {left_out} more ...", "dim")
    for line in lines[LOG_LINES - 1 :][-1:]:
        console.line(_log_line(line.number, line.level, line.message, line.data))


def _log_line(number: int, level: str, message: str, data: dict[str, Any] | None) -> str:
    facts = " ".join(f"{key}={value}" for key, value in (data or {}).items())
    return f"  {number:>3}  {level:<5}  {message}  {facts}".rstrip()


def show_error(console: Console, runs: Iterable[Run]) -> None:
    """Print the error of a job that failed for good, and the end of its traceback."""
    from kumiko_django.models import JobRun

    run = next((run for run in runs if run.final and run.error and run.attempt > 1), None)
    if run is None:
        return
    row = JobRun.objects.get(pk=run.id)
    console.title(
        f"The error of {run.job} for {run.tenant}, attempt {run.attempt} of {run.max_attempts}"
    )
    console.line(f"  {row.error}", "bad")
    for line in row.traceback.rstrip().splitlines()[-TRACEBACK_LINES:]:
        console.line(f"  {line}", "dim")


def show_checks(console: Console, checks: Sequence[Check]) -> None:
    """Print what was checked.

    Raises:
        DemoFailed: Something did not come out as told.
    """
    console.title("As told?")
    for check in checks:
        if check.is_fine:
            console.line(f"  {console.styled('yes', 'good')}  {check.text}")
        else:
            console.line(f"  {console.styled('NO', 'bad')}   {check.text}")
            console.line(f"       expected {check.expected!r}, found {check.found!r}")
    wrong = [check.text for check in checks if not check.is_fine]
    if wrong:
        raise DemoFailed(f"Not as told: {'; '.join(wrong)}")
