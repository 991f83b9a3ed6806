"""The project's source files, parsed once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "kumiko_django"


@dataclass(frozen=True)
class Source:
    """One Python file."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        """The path as messages and the exception list write it."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def line_count(self) -> int:
        """Lines, comments and empty ones included."""
        return len(self.text.splitlines())

    @property
    def is_migration(self) -> bool:
        """Whether makemigrations wrote it."""
        return self.path.parent.name == "migrations"

    def imported_modules(self) -> Iterator[str]:
        """Dotted names of everything that is imported anywhere in the file, in functions too."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield node.module or ""

    def functions(self) -> Iterator[tuple[str, int]]:
        """Qualified name and length in lines of every function, decorators not counted."""
        yield from _functions(self.tree, "")


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, int]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}{child.name}"
            if not isinstance(child, ast.ClassDef):
                yield name, (child.end_lineno or child.lineno) - child.lineno + 1
            yield from _functions(child, f"{name}.")
        else:
            yield from _functions(child, prefix)


@cache
def sources(*folders: str) -> tuple[Source, ...]:
    """Every Python file below the given folders of the checkout."""
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return tuple(_read(path) for path in paths)


def _read(path: Path) -> Source:
    text = path.read_text(encoding="utf-8")
    return Source(path, text, ast.parse(text, filename=str(path)))
