"""``make regressions`` itself: what counts as proved, and what it says where nothing is."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.regressions import report
from tests.regressions.regression import (
    ITEMS,
    Outdated,
    Regression,
    Replacement,
    known,
    load,
)
from tests.regressions.report import Case

pytestmark = pytest.mark.once

FILE = "kumiko_django/broker/keys.py"
TEST = "tests/unit/broker/test_keys.py::test_ids_of_children_of_unusual_tenants"
REGRESSION = Regression(
    was="ids of children were made of the tenant's alone.",
    test=TEST,
    fails_at="assert told_apart.endswith(",
    changes=(Replacement(FILE, old="if _PLAIN.fullmatch(tenant_id):", new="if tenant_id:"),),
    item="P40",
)
FAILED = Case(
    TEST, 0.1, "AssertionError: no", "    x = 1\n>   assert told_apart.endswith(x)\nE   no"
)


def test_every_severe_weakness_that_is_mended_has_its_file() -> None:
    assert tuple(known()) == ITEMS
    with pytest.raises(LookupError, match=r"no tests/regressions/p99\.py; known: P01, P02"):
        load("P99")


@pytest.mark.parametrize(
    ("text", "count"), [("x = 1\n", 0), ("if _PLAIN.fullmatch(tenant_id):\n" * 2, 2)]
)
def test_a_text_that_has_moved_on_is_told_with_its_place(
    text: str, count: int, tmp_path: Path
) -> None:
    (tmp_path / FILE).parent.mkdir(parents=True)
    (tmp_path / FILE).write_text(text, encoding="utf-8")
    with pytest.raises(Outdated) as raised:
        REGRESSION.applied(tmp_path)
    told = str(raised.value)
    assert told.startswith("P40 ")
    assert f"this stands {count} times in {FILE}:\nif _PLAIN" in told
    assert "Change tests/regressions/p40.py" in told
    assert REGRESSION.was in told


def test_a_file_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(Outdated, match=f"{FILE} is no file"):
        REGRESSION.applied(tmp_path)


def test_a_failure_at_its_line_is_what_is_wanted() -> None:
    assert report.fault(1, [FAILED, FAILED], REGRESSION) == ""


@pytest.mark.parametrize(
    ("code", "cases", "told"),
    [
        (4, [], "was not run"),
        (0, [Case(TEST, 0.1)], "does not prove P40"),
        (1, [FAILED, Case(f"{TEST}[b]", 0.1)], r"test_ids_of_children_of_unusual_tenants\[b\] pas"),
        (1, [Case(TEST, 0.1, error="failed on setup")], "met an error .* setup"),
        (1, [replace(FAILED, failure="Failed: Timeout (>60.0s)")], "ran out of time"),
        (1, [replace(FAILED, trace=">   assert other\n")], "fails elsewhere"),
        (1, [replace(FAILED, trace="    assert told_apart.endswith(x)\n>   f()\n")], "elsewhere"),
        (2, [FAILED], "code 2"),
    ],
)
def test_anything_else_is_a_fault(code: int, cases: list[Case], told: str) -> None:
    assert re.search(told, report.fault(code, cases, REGRESSION))


@pytest.mark.parametrize(
    ("cases", "told"),
    [
        ([Case(TEST, 1.0), Case(f"{TEST}[a]", 2.0)], {}),
        ([Case("another", 1.0)], {"P40": f"{TEST} was not run; is it still there?"}),
        ([FAILED], {"P40": f"{TEST} fails without the regression, too: AssertionError: no"}),
        ([Case(TEST, 21.0)], {"P40": f"{TEST} takes 21 s; name one of less than 20 s"}),
        ([], {"unchanged": "the tests could not be run without a regression either"}),
    ],
)
def test_without_the_regression_the_test_has_to_pass(
    cases: list[Case], told: dict[str, str]
) -> None:
    assert report.unchanged_faults(cases, [REGRESSION]) == told


RESULTS = """<testsuites><testsuite>
<testcase classname="tests.a.test_b.TestC" name="test_d[x::y]" time="1.5">
<failure message="E: first&#10;second">&gt;   assert x</failure></testcase>
<testcase classname="tests.a.test_b.TestC" name="test_d[x::y]" time="0.1">
<error message="failed on teardown">t</error></testcase>
<testcase classname="tests.a.test_b" name="test_e" time="0.2"><error message="setup"/></testcase>
<testcase classname="tests.a.test_b" name="test_f" time="0.2"/>
</testsuite></testsuites>"""


def test_results_are_read_under_the_names_of_the_tests(tmp_path: Path) -> None:
    file = tmp_path / "results.xml"
    file.write_text(RESULTS, encoding="utf-8")
    tests = ["tests/a/test_b.py::TestC::test_d", "tests/a/test_b.py::test_e"]
    assert report.read(file, tests) == [
        Case(f"{tests[0]}[x::y]", 1.5, "E: first", ">   assert x"),
        Case(tests[1], 0.2, error="setup"),
    ]
    assert report.read(tmp_path / "none.xml", tests) == []
    file.write_text("<half", encoding="utf-8")
    assert report.read(file, tests) == []
