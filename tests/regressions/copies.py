"""A copy of the checkout, and pytest running in it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.regressions.regression import ROOT, Regression
from tests.regressions.report import UNCHANGED

COPIED: Final = ("kumiko_django", "tests", "example_project", "pyproject.toml")
"""What the tests import and read."""
TEST_SECONDS: Final = 60
"""A test that takes longer is ended by pytest, which does not count as its failure."""
END_SECONDS: Final = 30.0
_OURS: Final = ("REDIS_URL", "DATABASE_URL")


class Copy:
    """A copy with pytest running in it, with services of its own."""

    def __init__(self, tests: Sequence[str], regression: Regression | None = None) -> None:
        """Make the copy, apply the regression, and start the tests.

        Raises:
            Outdated: The regression does not fit the code.
        """
        self.began = time.monotonic()
        self.regression = regression
        self.tests = tuple(tests)
        self._folder = Path(tempfile.mkdtemp(prefix="kumiko-regression-"))
        try:
            self.root = self._folder / "copy"
            _copy(self.root)
            if regression is not None:
                for path, text in regression.applied(self.root).items():
                    path.write_text(text, encoding="utf-8")
            self._process = self._start()
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    @property
    def name(self) -> str:
        """What it is, in a word."""
        return UNCHANGED if self.regression is None else self.regression.item

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self.began

    def ended(self) -> int | None:
        """The exit code of pytest, or None while it runs."""
        code = self._process.poll()
        if code is None and self.seconds > TEST_SECONDS * (1 + len(self.tests)):
            self._stop()
            return self._process.returncode
        return code

    @property
    def results(self) -> Path:
        """Where pytest writes what became of each test."""
        return self._folder / "results.xml"

    def output(self) -> str:
        """What pytest has printed."""
        return (self._folder / "output.txt").read_text(encoding="utf-8", errors="replace")

    def close(self) -> None:
        """End what runs, and remove the copy."""
        self._stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> subprocess.Popen[bytes]:
        # Fresh services: on the user's, two runs at once would create the same test database.
        environment = {name: value for name, value in os.environ.items() if name not in _OURS}
        with (self._folder / "output.txt").open("wb") as output:
            return subprocess.Popen(
                [
                    *(
                        sys.executable,
                        "-m",
                        "pytest",
                        "-p",
                        "no:cacheprovider",
                        "-p",
                        "no:randomly",
                    ),
                    *("-p", "no:randomly", "--tb=long", f"--timeout={TEST_SECONDS}"),
                    f"--junitxml={self.results}",
                    *self.tests,
                ],
                cwd=self.root,
                env={**environment, "KUMIKO_TEST_DATABASE": "sqlite"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _stop(self) -> None:
        """In order, so that it ends its servers."""
        if self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def _copy(root: Path) -> None:
    root.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            # No compiled files: they know where their sources were.
            ignored = shutil.ignore_patterns("__pycache__", "node_modules")
            shutil.copytree(source, root / name, ignore=ignored)
        else:
            shutil.copy2(source, root / name)
