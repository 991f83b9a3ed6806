"""The page of behaviours: every item once and in order, with a test that is there and names it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pytest

from tests.architecture.sources import ROOT, sources

pytestmark = pytest.mark.once

PAGE = ROOT / "docs" / "reference" / "behaviour.md"
BEHAVIOURS = [
    *(f"B{number:03d}" for number in range(1, 185)),
    "B184a",
    "B184b",
    *(f"B{number:03d}" for number in range(185, 246)),
]
GRAVEST = [
    f"P{number:02d}"
    for number in (
        1, 2, 3, 12, 13, 15, 23, 24, 25, 32, 39, 40, 48, 49, 58, 63, 64, 67, 68, 73, 74, 87, 95,
        102, 103, 104, 106,
    )
] + ["P106B"]  # fmt: skip
PLANNED = {
    "the outbox, and retrying from the history": "P63 P74",
}
"""What may be planned, by what has to be built first. It gets shorter, never longer."""

ROW = re.compile(r"^\| ([BP]\d\w*) \| (.*) \| (.*) \|$", re.MULTILINE)
REPLACED = re.compile(r"^replaced \((?:P\d{2,3}|design(?: [1-9])?)\): ")
NOQA = re.compile(r"# noqa: .*")
"""The linter has rules that are called like items."""
TEST = re.compile(r"^`(tests/[\w/]+\.py)::((?:Test\w+::)?test_\w+)`$")


@dataclass(frozen=True)
class Row:
    """One item of the page."""

    item: str
    rule: str
    proof: str

    @property
    def tests(self) -> list[str]:
        """What is named as proof, as it is written."""
        return REPLACED.sub("", self.proof).split(", ")


@cache
def rows() -> list[Row]:
    return [Row(*found) for found in ROW.findall(PAGE.read_text(encoding="utf-8"))]


def planned() -> set[str]:
    return {item for items in PLANNED.values() for item in items.split()}


def named_tests() -> Iterator[tuple[str, str, str]]:
    """Item, file and name of every test that stands on the page."""
    for row in rows():
        if row.proof != "planned":
            for test in row.tests:
                found = TEST.match(test)
                assert found, f"{row.item}: {test!r} is neither a test nor `planned`"
                yield row.item, found[1], found[2]


@cache
def known_tests() -> dict[tuple[str, str], str]:
    """By file and name: what a function says, with the docstrings of its class and its module."""
    return {
        (source.name, name): said
        for source in sources("tests")
        for name, said in _tests_in(source.tree, source.text.splitlines(), "", "")
    }


def _tests_in(
    node: ast.Module | ast.ClassDef, lines: list[str], prefix: str, above: str
) -> Iterator[tuple[str, str]]:
    above = f"{above}\n{ast.get_docstring(node) or ''}"
    for child in node.body:
        if isinstance(child, ast.ClassDef):
            yield from _tests_in(child, lines, f"{prefix}{child.name}::", above)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            own = "\n".join(lines[child.lineno - 1 : child.end_lineno])
            yield f"{prefix}{child.name}", f"{above}\n{NOQA.sub('', own)}"


def test_every_item_stands_there_once_and_in_order() -> None:
    assert [row.item for row in rows()] == [*BEHAVIOURS, *GRAVEST]


def test_every_item_has_a_rule_in_a_sentence_or_two() -> None:
    assert not [row for row in rows() if not re.fullmatch(r".{10,250}\.", row.rule)]


def test_only_what_may_be_planned_is() -> None:
    """And nothing stays on the list of what may be that is not any more."""
    assert {row.item for row in rows() if row.proof == "planned"} == planned()


def test_every_test_that_is_named_is_there() -> None:
    missing = [
        f"{item}: {file}::{name}"
        for item, file, name in named_tests()
        if (file, name) not in known_tests()
    ]
    assert not missing


def test_every_test_names_the_item_that_it_proves() -> None:
    """In its docstring or a comment, or in the docstring of its class or module."""
    silent = [
        f"{file}::{name} does not name {item}"
        for item, file, name in named_tests()
        if not re.search(rf"\b{item}\b", known_tests().get((file, name), item))
    ]
    assert not silent


def test_no_test_names_an_item_that_there_is_not() -> None:
    """A number that is mistyped would prove nothing."""
    unknown = [
        f"{file}::{name} names {item}"
        for (file, name), said in known_tests().items()
        for item in re.findall(r"\bB\d{3}\w?\b", said)
        if item not in BEHAVIOURS
    ]
    assert not unknown
