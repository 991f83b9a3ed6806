"""``python -m tests.chaos``: the random kills, as many as wanted, on PostgreSQL and on SQLite."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from tests.helpers.processes import ROOT
from tests.helpers.services import DATABASES


def main() -> int:
    """Run them; give the first exit code that is not zero."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="how many workers are killed")
    parser.add_argument("--seed", type=int, help="repeat the jobs and victims of another time")
    parser.add_argument("--database", choices=DATABASES, action="append", help="of both: only this")
    options = parser.parse_args()
    databases = options.database or ["postgres", "sqlite"]
    if os.environ.get("DATABASE_URL"):  # a database of the user's: there is only that one
        databases = databases[:1]
    codes = [_run(database, options) for database in databases]
    return next((code for code in codes if code), 0)


def _run(database: str, options: argparse.Namespace) -> int:
    environment = {
        **os.environ,
        "KUMIKO_TEST_DATABASE": database,
        "KUMIKO_TEST_KILLS": str(options.kills),
        "KUMIKO_TEST_SEED": "" if options.seed is None else str(options.seed),
    }
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "tests/chaos/test_kills.py",
    ]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
