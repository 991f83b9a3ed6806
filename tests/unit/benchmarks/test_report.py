"""The one table, on the terminal and on the page (design 9)."""

from __future__ import annotations

import pytest

from benchmarks.__main__ import PAGE
from benchmarks.figures import Bound, Spread
from benchmarks.report import BEGIN, END, Line, number, replaced, table

pytestmark = pytest.mark.once


def drained(ratio: float) -> Line:
    return Line(
        "drain", Spread(1900, 1800, 2000), "/s", "raw", Spread(1000, 900, 1100),
        Spread(ratio, 0.5, 2.0), Bound(1.1),
    )  # fmt: skip


def test_a_line_shows_both_sides_with_their_spread_and_the_bound() -> None:
    assert drained(1.9).cells() == (
        "drain",
        "1,900/s (1,800 to 2,000)",
        "raw: 1,000/s (900 to 1,100)",
        "1.90 (0.50 to 2.00)",
        "≥ 1.1: yes",
    )


def test_a_bound_that_does_not_hold_stands_out() -> None:
    assert drained(1.05).cells()[-1] == "≥ 1.1: **no**"


def test_without_a_ratio_the_figure_itself_is_judged() -> None:
    line = Line("p99", Spread(21, 21, 21), "ms", bound=Bound(20, is_floor=False))

    assert line.cells() == ("p99", "21.0 ms", "", "", "< 20 ms: **no**")
    assert not line.holds


def test_a_bound_of_a_rate_is_written_as_one() -> None:
    line = Line("commands", Spread(1.2, 1.2, 1.2), "/s", bound=Bound(10, is_floor=False))

    assert line.cells() == ("commands", "1.20/s", "", "", "< 10/s: yes")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12345.6, "12,346"),
        (99.96, "100.0"),
        (12.34, "12.3"),
        (0.456, "0.46"),
        (0.00906, "0.0091"),
        (0.0, "0"),
    ],
)
def test_numbers_have_no_digits_that_do_not_count(value: float, text: str) -> None:
    assert number(value) == text


def test_the_columns_of_the_table_stand_under_each_other() -> None:
    lines = table([drained(1.9), Line("a longer name", Spread(1, 1, 1), "s")]).splitlines()

    assert len(lines) == 4
    assert len({len(line) for line in lines}) == 1
    assert {line.count("|") for line in lines} == {6}


def test_only_what_stands_between_the_markers_is_replaced() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"

    assert replaced(page, "new") == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    assert replaced(replaced(page, "new"), "newer") == replaced(page, "newer")


@pytest.mark.parametrize("page", ["", BEGIN, f"{END}{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"])
def test_a_page_without_its_markers_is_left_alone(page: str) -> None:
    with pytest.raises(ValueError, match="once each"):
        replaced(page, "new")


def test_the_page_in_the_documentation_has_its_place_for_the_table() -> None:
    assert "the new table" in replaced(PAGE.read_text(encoding="utf-8"), "the new table")
