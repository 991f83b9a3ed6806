"""What pytest has said about a copy, and whether it is what was expected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from tests.regressions.regression import Regression

LONGEST_SECONDS: Final = 20.0
"""Of a test that is named by a regression."""
UNCHANGED: Final = "unchanged"
"""What the copy without a regression is called."""
_FAILED = 1
_TIMEOUT = "Failed: Timeout"


@dataclass(frozen=True, slots=True)
class Case:
    """What became of one test.

    Attributes:
        name: As pytest names it.
        seconds: How long it took.
        failure: What it has failed with; empty if it has not.
        trace: The traceback of that.
        error: What was wrong around it: in a fixture, say; empty if nothing was.
    """

    name: str
    seconds: float
    failure: str = ""
    trace: str = ""
    error: str = ""

    def is_of(self, test: str) -> bool:
        """Whether it is the test, or one of its cases."""
        return self.name == test or ("[" not in test and self.name.partition("[")[0] == test)

    def fails_at(self, line: str) -> bool:
        """Whether it has failed at a line that begins so."""
        marked = (text[1:].strip() for text in self.trace.splitlines() if text.startswith(">"))
        return any(text.startswith(line) for text in marked)


def read(results: Path, tests: Sequence[str]) -> list[Case]:
    """The cases in a file of results; none where pytest has written nothing that can be read.

    Args:
        results: A JUnit file.
        tests: The tests that were asked for: of theirs, the file has the names only.
    """
    try:
        found = ElementTree.parse(results).iter("testcase")  # noqa: S314  (pytest has written it)
    except (OSError, ElementTree.ParseError):
        return []
    named = {_in_junit(test): test for test in tests}
    cases: dict[str, Case] = {}
    for case in (_case(element, named) for element in found):
        # What goes wrong after a failure is a case of its own there, with the same name.
        if case.name and (case.name not in cases or not cases[case.name].failure):
            cases[case.name] = case
    return list(cases.values())


def unchanged_faults(cases: Sequence[Case], regressions: Sequence[Regression]) -> dict[str, str]:
    """Why a test proves nothing, by item: it fails or is slow without the regression as well."""
    found: dict[str, str] = {}
    if not cases:
        return {UNCHANGED: "the tests could not be run without a regression either"}
    for regression in regressions:
        own = [case for case in cases if case.is_of(regression.test)]
        bad = [case for case in own if case.failure or case.error]
        if not own:
            found[regression.item] = f"{regression.test} was not run; is it still there?"
        elif bad:
            told = bad[0].failure or bad[0].error
            found[regression.item] = f"{bad[0].name} fails without the regression, too: {told}"
        elif (seconds := sum(case.seconds for case in own)) > LONGEST_SECONDS:
            found[regression.item] = (
                f"{regression.test} takes {seconds:.0f} s; name one of less than "
                f"{LONGEST_SECONDS:g} s"
            )
    return found


def fault(code: int, cases: Sequence[Case], regression: Regression) -> str:
    """Why a test that was to fail has not done so as it should; empty if it has."""
    if not cases:
        return f"its test was not run (pytest ended with code {code}); does the change compile?"
    for case in cases:
        if not case.failure and case.error:
            return f"{case.name} met an error before or after it, and is no failure: {case.error}"
        if not case.failure:
            return f"{case.name} passes with the regression: it does not prove {regression.item}"
        if case.failure.startswith(_TIMEOUT):
            return f"{case.name} ran out of time instead of failing by itself"
        if not case.fails_at(regression.fails_at):
            return f"{case.name} fails elsewhere than at {regression.fails_at!r}: {case.failure}"
    return "" if code == _FAILED else f"pytest ended with code {code}"


def _case(element: ElementTree.Element, named: dict[tuple[str, str], str]) -> Case:
    name, bracket, parameter = element.get("name", "").partition("[")
    own = f"{name}{bracket}{parameter}"
    place = element.get("classname", "")
    test = named.get((place, own)) or named.get((place, name), "")
    test = test if "[" in test or not test else f"{test}{bracket}{parameter}"
    failure, error = element.find("failure"), element.find("error")
    return Case(
        test,
        float(element.get("time", "0")),
        _message(failure),
        "" if failure is None else failure.text or "",
        _message(error),
    )


def _message(element: ElementTree.Element | None) -> str:
    return "" if element is None else next(_lines(element.get("message", "")), "?")


def _lines(text: str) -> Iterator[str]:
    return (line.strip() for line in text.splitlines() if line.strip())


def _in_junit(test: str) -> tuple[str, str]:
    """How a test is called in the file of results: class and name."""
    path, *inner = test.split("::")
    return ".".join([path.removesuffix(".py").replace("/", "."), *inner[:-1]]), inner[-1]
