"""Reading the example's CSV files."""

from __future__ import annotations

import io

import pytest

from example_project.demo.order_files import make_order_file
from example_project.orders.csv_rows import (
    COLUMNS,
    BrokenRow,
    NotAnOrderFile,
    OrderRow,
    count_rows,
    read_rows,
)
from tests.helpers.processes import ROOT

pytestmark = pytest.mark.once

HEADER = ",".join(COLUMNS) + "\n"
GOOD = 'A-1,"Müller, Groß & Söhne",info@example.com,"Schrauben, verzinkt",3,12.50,2026-03-01\n'


def rows_of(text: str) -> list[OrderRow | BrokenRow]:
    return list(read_rows(io.StringIO(HEADER + text, newline="")))


def test_umlauts_and_quoted_commas_arrive() -> None:
    (row,) = rows_of(GOOD)

    assert isinstance(row, OrderRow)
    assert (row.customer, row.article) == ("Müller, Groß & Söhne", "Schrauben, verzinkt")
    assert str(row.quantity * row.unit_price) == "37.50"


@pytest.mark.parametrize(
    ("good", "broken", "field"),
    [
        (",3,", ",three,", "quantity"),
        (",3,", ",0,", "quantity"),
        ("12.50", "-12.50", "unit_price"),
        ("12.50", "12.505", "unit_price"),
        ("2026-03-01", "2026-02-30", "ordered_on"),
        ("info@example.com", "info", "email"),
        ("A-1", " ", "number"),
        (",2026-03-01", "", "ordered_on"),
    ],
)
def test_a_broken_row_is_told_by_line_and_field_and_does_not_end_the_file(
    good: str, broken: str, field: str
) -> None:
    first, second = rows_of(GOOD.replace(good, broken) + GOOD.replace("A-1", "A-2"))

    assert isinstance(first, BrokenRow)
    assert first.line == 2
    assert first.reason.startswith(f"{field}: ")
    assert isinstance(second, OrderRow)


def test_the_reason_does_not_repeat_what_the_customer_wrote() -> None:
    (row,) = rows_of(GOOD.replace("info@example.com", "Private Lane 5"))

    assert isinstance(row, BrokenRow)
    assert "Private" not in row.reason


def test_a_number_that_comes_twice_is_taken_once() -> None:
    first, second = rows_of(GOOD + GOOD)

    assert isinstance(first, OrderRow)
    assert second == BrokenRow(3, "order A-1 is in this file already")


def test_a_file_without_the_columns_is_none() -> None:
    with pytest.raises(NotAnOrderFile, match="columns are missing: article, customer"):
        list(read_rows(io.StringIO("number,email\nA-1,info@example.com\n")))


def test_a_file_that_is_not_utf_8_is_none() -> None:
    latin = io.TextIOWrapper(io.BytesIO((HEADER + GOOD).encode("latin-1")), encoding="utf-8-sig")

    with pytest.raises(NotAnOrderFile, match="no CSV file in UTF-8"):
        count_rows(latin)


def test_the_sample_file_has_something_of_everything() -> None:
    sample = ROOT / "example_project" / "sample-orders.csv"
    with sample.open(encoding="utf-8-sig", newline="") as file:
        rows = list(read_rows(file))

    assert [row.line for row in rows if isinstance(row, BrokenRow)] == [5, 7]
    assert sum(isinstance(row, OrderRow) for row in rows) == 5


def test_the_demo_knows_what_is_in_its_files() -> None:
    """What an import is expected to make of a file is right for another reader too."""
    file = make_order_file("orders.csv", rows=700, broken=6)
    text = io.StringIO(file.content.decode("utf-8-sig"), newline="")
    rows = list(read_rows(text))
    good = [row for row in rows if isinstance(row, OrderRow)]

    assert count_rows(text) == len(rows) == 700
    assert (len(good), len(rows) - len(good)) == (file.good, file.broken) == (694, 6)
    assert len({row.email for row in good}) == file.customers
    assert any('"' in row.article and "," in row.article for row in good)
    assert any("ä" in row.customer for row in good)
