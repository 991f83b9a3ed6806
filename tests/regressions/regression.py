"""What a file of this folder says, and how it is applied."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = "tests/regressions"

ITEMS: Final = (
    "P01", "P02", "P03", "P12", "P13", "P15", "P23", "P24", "P25", "P32", "P39", "P40", "P48",
    "P49", "P58", "P64", "P67", "P68", "P73", "P87", "P95", "P102", "P103", "P104", "P106", "P106B",
)  # fmt: skip
"""The severe weaknesses whose remedy is built; whoever builds another one's adds it here."""


class Outdated(Exception):
    """A regression does not fit the code any more; the message says which, where and what to do."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """A piece of the package's text, and what stands there with the weakness.

    Attributes:
        file: Path from the root of the checkout.
        old: Exactly what is replaced; must stand in the file once.
        new: What replaces it.
    """

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Regression:
    """How to bring one weakness back.

    Attributes:
        was: What the original did.
        test: The test that must fail then, as pytest names it; without a parameter in brackets,
            each of its cases.
        fails_at: The beginning of the line of this test at which it must.
        changes: What brings the weakness back.
        item: Its number; that of the file.
    """

    was: str
    test: str
    fails_at: str
    changes: tuple[Replacement, ...]
    item: str = field(default="", kw_only=True)

    @property
    def place(self) -> str:
        """The file that says all this."""
        return f"{FOLDER}/{self.item.lower()}.py"

    def applied(self, root: Path) -> dict[Path, str]:
        """The changed files, and their new text.

        Args:
            root: Of the checkout, or of a copy.

        Raises:
            Outdated: A text to be replaced does not stand there once.
        """
        texts: dict[Path, str] = {}
        for change in self.changes:
            path = root / change.file
            if not path.is_file():
                raise Outdated(self._told(f"{change.file} is no file"))
            text = texts.get(path) or path.read_text(encoding="utf-8")
            count = text.count(change.old)
            if count != 1:
                raise Outdated(
                    self._told(f"this stands {count} times in {change.file}:\n{change.old}\n")
                )
            texts[path] = text.replace(change.old, change.new)
        return texts

    def _told(self, what: str) -> str:
        return (
            f"{self.item} must replace texts that stand in the package exactly once, but {what}"
            f"\nThe code has moved on. Change {self.place}, so that it brings this back: {self.was}"
        )


def known() -> Iterator[str]:
    """The items that have a file, in the order of their numbers."""
    names = [path.stem.upper() for path in (ROOT / FOLDER).glob("p[0-9]*.py")]
    yield from sorted(names, key=lambda name: (int(name[1:].rstrip("B")), name))


def load(item: str) -> Regression:
    """What the file of an item says.

    Raises:
        LookupError: There is no such file.
    """
    if item not in set(known()):
        raise LookupError(f"There is no {FOLDER}/{item.lower()}.py; known: {', '.join(known())}.")
    said = importlib.import_module(f"tests.regressions.{item.lower()}").REGRESSION
    return Regression(said.was, said.test, said.fails_at, said.changes, item=item)
