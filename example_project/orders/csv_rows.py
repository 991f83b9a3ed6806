"""Reading orders from a CSV file, row by row. Knows neither Django nor jobs."""

from __future__ import annotations

import csv
import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, TextIO

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

Text = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class OrderRow(BaseModel):
    """A row that makes an order."""

    model_config = ConfigDict(str_strip_whitespace=True, frozen=True)

    number: Annotated[str, StringConstraints(min_length=1, max_length=40)]
    customer: Text
    email: Annotated[str, StringConstraints(pattern=r"^[^@\s]+@[^@\s]+$", max_length=200)]
    article: Text
    quantity: Annotated[int, Field(ge=1)]
    unit_price: Annotated[Decimal, Field(ge=0, max_digits=10, decimal_places=2)]
    ordered_on: dt.date


COLUMNS = tuple(OrderRow.model_fields)


@dataclass(frozen=True, slots=True)
class BrokenRow:
    """A row that does not, and why."""

    line: int
    reason: str


class NotAnOrderFile(Exception):
    """The file as a whole cannot be read."""


def count_rows(file: TextIO) -> int:
    """How many rows there are below the header; the file is read from its beginning."""
    file.seek(0)
    try:
        return max(0, sum(1 for row in csv.reader(file) if row) - 1)
    except (csv.Error, UnicodeDecodeError) as error:
        raise NotAnOrderFile(f"This is no CSV file in UTF-8: {error}") from error


def read_rows(file: TextIO) -> Iterator[OrderRow | BrokenRow]:
    """Every row below the header, in order; the file is read from its beginning."""
    file.seek(0)
    reader = csv.DictReader(file)
    missing = set(COLUMNS) - set(reader.fieldnames or ())
    if missing:
        raise NotAnOrderFile(f"These columns are missing: {', '.join(sorted(missing))}")
    seen: set[str] = set()
    for row in reader:
        try:
            order = OrderRow.model_validate({name: row[name] or "" for name in COLUMNS})
        except ValidationError as error:
            yield BrokenRow(reader.line_num, _reason(error))
            continue
        if order.number in seen:
            yield BrokenRow(reader.line_num, f"order {order.number} is in this file already")
            continue
        seen.add(order.number)
        yield order


def _reason(error: ValidationError) -> str:
    # Without the values: names and addresses of customers have no place in a log.
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{problem['loc'][0]}: {problem['msg']}" for problem in problems)
