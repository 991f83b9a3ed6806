"""Following the runs while they happen."""

from __future__ import annotations

import time
from typing import Final

from example_project.demo.console import Console
from example_project.demo.processes import DemoFailed
from example_project.demo.runs import Run, differences, finished_stories, read_runs
from example_project.demo.site import Site
from example_project.demo.story import Told

SECONDS: Final = 120
POLL_SECONDS: Final = 0.2
BAR_WIDTH: Final = 24
STEPS: Final = (25, 50, 75)
"""Off a terminal, progress is told when it passes one of these percentages."""


def watch(told: Told, console: Console, site: Site) -> None:
    """Show the runs until all that was told has happened, or something else has.

    Raises:
        DemoFailed: It took too long, or a process has ended.
    """
    deadline = time.monotonic() + SECONDS
    watcher = _Watcher(console)
    while True:
        site.require_alive()
        runs = read_runs()
        watcher.show(runs)
        finished = finished_stories(runs)
        if not told.jobs - finished or finished - told.jobs:
            # Done, or already wrong; ``checks`` says what.
            break
        if time.monotonic() > deadline:
            missing = "\n".join(f"    {text}" for text in differences(told.jobs, runs))
            raise DemoFailed(
                f"After {SECONDS} s not all jobs have ended:\n{missing}\n{site.last_words()}"
            )
        time.sleep(POLL_SECONDS)
    console.live(())


class _Watcher:
    """Knows what has been shown already."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: dict[str, str] = {}
        self._steps: dict[str, int] = {}
        self._started = time.monotonic()

    def show(self, runs: list[Run]) -> None:
        for run in runs:
            if self._shown.get(run.id) != run.status:
                self._shown[run.id] = run.status
                if not run.is_running:
                    self._ended(run)
            elif run.is_running and not self._console.is_live:
                self._step(run)
        self._console.live([_bar(run) for run in runs if run.is_running])

    def _ended(self, run: Run) -> None:
        style = "good" if run.status == "completed" else "bad"
        self._say(run, self._console.styled(f"{run.status:<9}", style), _first_line(run.error))

    def _step(self, run: Run) -> None:
        percent = _percent(run)
        step = max((step for step in STEPS if step <= percent), default=0)
        if step > self._steps.get(run.id, 0):
            self._steps[run.id] = step
            self._say(run, f"{percent:3} %    ", str(run.progress.get("message", "")))

    def _say(self, run: Run, what: str, more: str) -> None:
        seconds = time.monotonic() - self._started
        attempt = f"attempt {run.attempt} of {run.max_attempts}"
        who = f"{run.tenant:<10} {run.job:<30} {attempt}"
        self._console.line(f"  {seconds:5.1f} s  {who}  {what} {more}".rstrip())


def _percent(run: Run) -> int:
    done, total = run.progress.get("done"), run.progress.get("total")
    return int(100 * done / total) if done and total else 0


def _bar(run: Run) -> str:
    percent = _percent(run)
    filled = BAR_WIDTH * percent // 100
    bar = "#" * filled + "." * (BAR_WIDTH - filled)
    message = run.progress.get("message", "")
    return f"  {run.tenant:<10} {run.job:<30} [{bar}] {percent:3} % {message}"


def _first_line(text: str) -> str:
    return text.split("\n", 1)[0]
