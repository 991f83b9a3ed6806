"""``python -m tests.chaos``: what ``make test`` does to workers and at the door, much longer.

Random kills on PostgreSQL and on SQLite, then random steps at the door, with kills as well, on the
second of them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from tests.helpers.processes import ROOT
from tests.helpers.services import DATABASES

KILLS = ("tests/chaos/test_kills.py",)
STEPS = ("tests/integration/admission/test_fuzz.py", "tests/integration/admission/test_kills.py")


def main() -> int:
    """Run them; give the first exit code that is not zero."""
    options = _parser().parse_args()
    databases = options.database or ["postgres", "sqlite"]
    if os.environ.get("DATABASE_URL"):  # a database of the user's: there is only that one
        databases = databases[:1]
    seed = {"KUMIKO_TEST_SEED": "" if options.seed is None else str(options.seed)}
    kills = {**seed, "KUMIKO_TEST_KILLS": str(options.kills)}
    steps = {**seed, "KUMIKO_TEST_STEPS": str(options.steps)}
    codes = [_run(database, KILLS, kills) for database in databases if options.kills]
    codes += [_run(databases[-1], STEPS, steps)] if options.steps else []
    return next((code for code in codes if code), 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="how many workers are killed")
    parser.add_argument("--steps", type=int, default=20_000, help="how many steps at the door")
    parser.add_argument("--seed", type=int, help="repeat the jobs and victims of another time")
    parser.add_argument("--database", choices=DATABASES, action="append", help="of both: only this")
    return parser


def _run(database: str, files: tuple[str, ...], environment: dict[str, str]) -> int:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--durations=2", *files]
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "KUMIKO_TEST_DATABASE": database, **environment},
        check=False,
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
