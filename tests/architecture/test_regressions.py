"""The files of ``tests/regressions`` fit the code: ``make regressions`` would not stumble."""

from __future__ import annotations

import ast
import re

import pytest

from tests.regressions.regression import ITEMS, ROOT, Regression, known, load

pytestmark = [
    pytest.mark.once,
    pytest.mark.parametrize(
        "regression", [load(item) for item in known()], ids=lambda one: one.item
    ),
]


def source_of_test(regression: Regression) -> str:
    """The test that a regression names, as it stands in its module."""
    path, *names = regression.test.partition("[")[0].split("::")
    text = (ROOT / path).read_text(encoding="utf-8")
    body: list[ast.stmt] = ast.parse(text, filename=path).body
    for name in names:
        found = [
            node
            for node in body
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name == name
        ]
        assert found, f"{regression.place} names {regression.test}, which is not there"
        body = found[-1].body
    return ast.get_source_segment(text, found[-1]) or ""


def test_it_applies_to_the_package_and_gives_python(regression: Regression) -> None:
    texts = regression.applied(ROOT)

    assert texts
    for path, text in texts.items():
        assert path.is_relative_to(ROOT / "kumiko_django")
        assert text != path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            ast.parse(text, filename=str(path))


def test_its_test_is_there_and_names_it(regression: Regression) -> None:
    text = source_of_test(regression)

    assert re.search(rf"\b{regression.item}\b", text), "its docstring says what it proves"
    lines = [line.strip() for line in text.splitlines()]
    assert any(line.startswith(regression.fails_at) for line in lines)


def test_it_says_what_the_original_did(regression: Regression) -> None:
    assert regression.item in ITEMS
    assert regression.was.endswith(".")
