"""``python -m tests.regressions [P01 ...]``: bring each weakness back, and see its test fail.

Two copies at a time, since most tests wait for something. In one more copy, without a change, all
the tests must pass.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import Final

from tests.regressions import report
from tests.regressions.copies import Copy
from tests.regressions.regression import Outdated, Regression, known, load

AT_A_TIME: Final = 2
_LOOK_SECONDS: Final = 0.1
_SHOWN_LINES: Final = 40


class Regressions:
    """All that are to be looked at, and what came of each."""

    def __init__(self, regressions: Sequence[Regression]) -> None:
        self._regressions = regressions
        self._waiting: list[Regression | None] = [None, *regressions]
        self._running: list[Copy] = []
        self._seconds: dict[str, float] = {}
        self._faults: dict[str, str] = {}

    def run(self) -> int:
        """Look at them; give the exit code."""
        began = time.monotonic()
        try:
            while self._waiting or self._running:
                while self._waiting and len(self._running) < AT_A_TIME:
                    self._begin(self._waiting.pop(0))
                time.sleep(_LOOK_SECONDS)
                for copy in list(self._running):
                    if (code := copy.ended()) is not None:
                        self._running.remove(copy)
                        self._end(copy, code)
                        copy.close()
        finally:
            for copy in self._running:
                copy.close()
        self._summarise(time.monotonic() - began)
        return 1 if self._faults else 0

    def _begin(self, regression: Regression | None) -> None:
        if regression is None:
            tests = dict.fromkeys(one.test for one in self._regressions)
            self._running.append(Copy(list(tests)))
            return
        try:
            self._running.append(Copy([regression.test], regression))
        except Outdated as error:
            self._faulty(regression.item, str(error))

    def _end(self, copy: Copy, code: int) -> None:
        cases = report.read(copy.results, copy.tests)
        if copy.regression is None:
            found = report.unchanged_faults(cases, self._regressions)
            for name, fault in found.items():
                self._faulty(name, fault)
        else:
            found = {}
            self._seconds[copy.name] = copy.seconds
            if fault := report.fault(code, cases, copy.regression):
                found[copy.name] = fault
                self._faulty(copy.name, fault)
            else:
                _say(f"{copy.name}: its test fails, as it should ({copy.seconds:.0f} s)")
        if found:
            _say("\n".join(copy.output().splitlines()[-_SHOWN_LINES:]))
        elif copy.regression is None:
            _say(f"unchanged: all tests pass ({copy.seconds:.0f} s)")

    def _faulty(self, name: str, fault: str) -> None:
        self._faults.setdefault(name, fault)
        _say(f"{name}: FAULT: {fault}")

    def _summarise(self, seconds: float) -> None:
        _say("\nitem  proved  seconds  test")
        for one in self._regressions:
            word = "NO" if one.item in self._faults else "yes"
            took = f"{self._seconds[one.item]:7.0f}" if one.item in self._seconds else f"{'-':>7}"
            _say(f"{one.item:<4}  {word:<6}  {took}  {one.test}")
        for name, fault in self._faults.items():
            _say(f"{name}: {fault}")
        proved = sum(one.item not in self._faults for one in self._regressions)
        _say(f"\n{proved} of {len(self._regressions)} proved in {seconds:.0f} s")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """Look at the items that are named, or at all."""
    parser = argparse.ArgumentParser(prog="python -m tests.regressions", description=__doc__)
    parser.add_argument("items", nargs="*", metavar="P01", help="only these")
    items = [item.upper() for item in parser.parse_args().items] or list(known())
    try:
        regressions = [load(item) for item in dict.fromkeys(items)]
    except LookupError as error:
        parser.error(str(error))
    signal.signal(signal.SIGTERM, _interrupted)  # so that copies and their servers are ended
    try:
        return Regressions(regressions).run()
    except KeyboardInterrupt:
        return 130


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
