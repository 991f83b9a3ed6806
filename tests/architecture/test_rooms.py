"""The rooms of the package: what each file must have and may import."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

import kumiko_django
from tests.architecture.sources import PACKAGE, ROOT, Source, sources

pytestmark = pytest.mark.once

CODE = ("kumiko_django", "example_project", "benchmarks", "tests")
BROKER_PACKAGES = {"bullmq", "redis", "django_redis"}


def rooms() -> list[Path]:
    return sorted(path.parent for path in PACKAGE.glob("*/__init__.py"))


@pytest.mark.parametrize("room", rooms(), ids=lambda room: room.name)
def test_a_room_says_what_it_is(room: Path) -> None:
    if room.name == "migrations":
        assert list(room.glob("0001_*.py"))
        return
    tree = ast.parse((room / "__init__.py").read_text(encoding="utf-8"))

    assert ast.get_docstring(tree), f"{room.name}/__init__.py has no docstring"


def test_every_module_has_the_future_import() -> None:
    without = [
        source.name
        for source in sources(*CODE)
        if source.tree.body and not _is_docstring_only(source) and not _has_future_import(source)
    ]

    assert not without


def _is_docstring_only(source: Source) -> bool:
    return len(source.tree.body) == 1 and ast.get_docstring(source.tree) is not None


def _has_future_import(source: Source) -> bool:
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module == "__future__"
        and any(alias.name == "annotations" for alias in node.names)
        for node in source.tree.body
    )


def test_only_the_broker_imports_bullmq_and_redis() -> None:
    """Imports inside functions too, and without any contract that could be edited away."""
    trespassing = [
        source.name
        for source in sources("kumiko_django")
        if not source.name.startswith("kumiko_django/broker/")
        and {name.split(".")[0] for name in source.imported_modules()} & BROKER_PACKAGES
    ]

    assert not trespassing


def test_the_package_imports_neither_the_tests_nor_the_example() -> None:
    for source in sources("kumiko_django"):
        roots = {name.split(".")[0] for name in source.imported_modules()}
        assert not roots & {"tests", "example_project"}, source.name


def test_the_example_uses_public_names_only() -> None:
    public_modules = {
        "kumiko_django",
        "kumiko_django.handlers",
        "kumiko_django.models",
        "kumiko_django.signals",
    }
    used: set[tuple[str, str]] = set()
    for source in sources("example_project"):
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kumiko_django"):
                used |= {(node.module or "", alias.name) for alias in node.names}
            elif isinstance(node, ast.Import):
                names = {alias.name for alias in node.names}
                assert not {n for n in names if n.startswith("kumiko_django.")}, source.name

    assert {module for module, _ in used} <= public_modules
    assert {name for module, name in used if module == "kumiko_django"} <= {
        *kumiko_django.__all__,
        "signals",
    }


def test_nothing_prints() -> None:
    printing = [
        source.name
        for source in sources("kumiko_django", "example_project")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]

    assert not printing


def test_no_module_is_a_drawer() -> None:
    drawers = {"utils", "helpers", "common", "misc"}

    assert not [s.name for s in sources("kumiko_django") if s.path.stem in drawers]


def layers() -> list[str]:
    """The import order as import-linter has it."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = {c["id"]: c for c in config["tool"]["importlinter"]["contracts"]}
    assert contracts["rooms"]["exhaustive"] is True
    return list(contracts["rooms"]["layers"])


def test_the_import_order_is_the_one_on_the_package_layout_page() -> None:
    """It stands in two places; where they differ, one of them is wrong."""
    page = (ROOT / "docs/design/package-layout.md").read_text(encoding="utf-8")

    assert "\n".join(layers()) in page


def test_exactly_the_rooms_that_are_not_built_are_optional() -> None:
    """A room that is there and optional could vanish without anybody noticing."""
    names = [name for layer in layers() for name in layer.split(" | ")]
    missing = {
        name
        for name in (n.strip("()") for n in names)
        if not (PACKAGE / name / "__init__.py").exists() and not (PACKAGE / f"{name}.py").exists()
    }

    assert {name.strip("()") for name in names if name.startswith("(")} == missing
