"""One table, for the terminal and for the page in the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.figures import Bound, Spread

BEGIN = "<!-- table: begin (python -m benchmarks --write) -->"
END = "<!-- table: end -->"
HEADER = ("what", "kumiko_django", "beside it", "ratio", "must hold")


@dataclass(frozen=True)
class Line:
    """One line of the table.

    Attributes:
        what: What was measured.
        ours: Our figure.
        unit: Of both figures, e.g. ``/s``.
        beside: Name of what it is compared with.
        theirs: The figure of that.
        ratio: Ours by theirs, round by round.
        bound: What must hold: of the ratio, or of our figure where there is no ratio.
    """

    what: str
    ours: Spread
    unit: str
    beside: str = ""
    theirs: Spread | None = None
    ratio: Spread | None = None
    bound: Bound | None = None

    @property
    def holds(self) -> bool:
        """Whether the bound is kept, if there is one."""
        judged = self.ratio or self.ours
        return self.bound is None or self.bound.holds(judged.median)

    def cells(self) -> tuple[str, ...]:
        """The five columns as text."""
        beside = f"{self.beside}: {_figure(self.theirs, self.unit)}" if self.theirs else ""
        ratio = _figure(self.ratio, "") if self.ratio else ""
        return (self.what, _figure(self.ours, self.unit), beside, ratio, self._verdict())

    def _verdict(self) -> str:
        if self.bound is None:
            return ""
        sign = "≥" if self.bound.is_floor else "<"
        unit = "" if self.ratio else _unit(self.unit)
        return f"{sign} {self.bound.limit:g}{unit}: {'yes' if self.holds else '**no**'}"


def number(value: float) -> str:
    """Three digits that count, and separators for thousands."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.2g}"


def _unit(unit: str) -> str:
    # A rate is one word: 1,900/s.
    return unit if unit.startswith("/") or not unit else f" {unit}"


def _figure(spread: Spread, unit: str) -> str:
    unit = _unit(unit)
    if spread.low == spread.high:
        return f"{number(spread.median)}{unit}"
    return f"{number(spread.median)}{unit} ({number(spread.low)} to {number(spread.high)})"


def table(lines: Sequence[Line]) -> str:
    """The lines as a Markdown table whose columns stand under each other."""
    rows = [HEADER, *(line.cells() for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    text = [_row(row, widths) for row in rows]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(text)


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return f"| {' | '.join(padded)} |"


def replaced(page: str, content: str) -> str:
    """The page with other content between its two markers.

    Raises:
        ValueError: The page does not have both, once and in order.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in after:
        raise ValueError(f"the page needs {BEGIN!r} and after it {END!r}, once each")
    return f"{before}{BEGIN}\n\n{content}\n\n{END}{after}"
