"""Run the test suite in passes, three at a time, each with services of its own.

Most tests wait for something, so three passes side by side take little longer than one, also on two
cores. What a pass prints is shown when it ends, whole and in one piece. The exit code is that of
the first pass that failed. Arguments go to every pass: ``make test TESTS="-x -k dispatch"``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

AT_A_TIME = 3
NO_TESTS = 5
"""pytest's exit code where a selection leaves nothing."""


@dataclass(frozen=True)
class Pass:
    """One run of pytest."""

    name: str
    arguments: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class Running:
    """A pass that runs, and where its output goes."""

    what: Pass
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    began: float


def passes() -> list[Pass]:
    """The whole suite. The longest come first; the one that times things comes last."""
    sqlite = {"KUMIKO_TEST_DATABASE": "sqlite"}
    # One of the two without the extra that makes the event loop another one.
    postgres = {"KUMIKO_TEST_DATABASE": "postgres", "KUMIKO_TEST_WITHOUT_UVLOOP": "1"}
    processes, kills = ("tests/integration", "tests/acceptance"), "tests/chaos"
    rest = [f"--ignore={folder}" for folder in (*processes, kills)]
    if os.environ.get("DATABASE_URL"):  # a database of the user's: there is only that one
        return [
            Pass("processes, your database", (*processes, "-m", "not idle")),
            Pass("killed workers, your database", (kills,)),
            Pass("the rest, your database", ("tests", *rest)),
            Pass("the idle queue, your database", ("-m", "idle")),
        ]
    # Rooms in which a database makes a difference, and those in which Redis does.
    both = (
        "tests/acceptance",
        *(f"tests/integration/{room}" for room in ("worker", "housekeeping")),
    )
    others = ["tests/integration", *(f"--ignore={folder}" for folder in both)]
    return [
        Pass(
            "all that asks the database, PostgreSQL",
            ("tests", f"--ignore={kills}", "-m", "not idle and not once"),
            postgres,
        ),
        Pass("processes, SQLite", (*both, "-m", "not idle"), sqlite),
        # Step by step on PostgreSQL only: it takes minutes, and what differs is how rows are
        # written, which the random kills meet as well.
        Pass("killed workers, PostgreSQL", (kills,), postgres),
        Pass("the rest, SQLite", ("tests", *rest), sqlite),
        Pass("what needs no database, in other rooms", (*others, "-m", "once"), sqlite),
        Pass("killed workers, SQLite", (f"{kills}/test_kills.py",), sqlite),
        Pass("the idle queue", ("tests/acceptance/test_idle.py",), sqlite),
    ]


def run(planned: Sequence[Pass], arguments: Sequence[str]) -> int:
    """Run the passes; give the exit code."""
    # Several passes would all create the test database of the user's server.
    at_a_time = 1 if os.environ.get("DATABASE_URL") else AT_A_TIME
    waiting, running, code = list(planned), list[Running](), 0
    try:
        while waiting or running:
            while waiting and len(running) < at_a_time:
                running.append(_start(waiting.pop(0), arguments))
            time.sleep(0.2)
            for ended in [item for item in running if item.process.poll() is not None]:
                running.remove(ended)
                result = _show(ended, bool(arguments))  # always: every pass is shown
                code = code or result
    finally:
        for item in running:
            _stop(item)
    return code


def _start(what: Pass, arguments: Sequence[str]) -> Running:
    output = tempfile.TemporaryFile()  # noqa: SIM115  (closed when it has been shown)
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *what.arguments, *arguments],
        env={**_environment(), **what.environment},
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    _say(f"begins: {what.name}")
    return Running(what, process, output, time.monotonic())


def _environment() -> dict[str, str]:
    """Ours; but hundreds of processes that compile the package anew would take minutes."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def _show(ended: Running, selection: bool) -> int:
    ended.output.seek(0)
    sys.stdout.flush()
    for chunk in _chunks(ended.output):
        sys.stdout.buffer.write(chunk)
    ended.output.close()
    code = ended.process.returncode
    if code == NO_TESTS and selection:
        code = 0
    word = "passed" if code == 0 else f"failed with code {code}"
    _say(f"{word} in {time.monotonic() - ended.began:.0f} s: {ended.what.name}")
    return code


def _chunks(output: IO[bytes]) -> Iterator[bytes]:
    while chunk := output.read(65536):
        yield chunk


def _stop(item: Running) -> None:
    """End a pass in order, so that it ends its servers."""
    item.process.send_signal(signal.SIGINT)
    try:
        item.process.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(item.process.pid, signal.SIGKILL)


def _say(text: str) -> None:
    sys.stdout.write(f"=== {text}\n")
    sys.stdout.flush()


def main() -> int:
    """Run everything; the arguments of the command line go to every pass."""
    os.chdir(Path(__file__).resolve().parent.parent)
    try:
        return run(passes(), sys.argv[1:])
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
