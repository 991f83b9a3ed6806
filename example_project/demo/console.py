"""What the demo says: plain lines, and on a terminal colours and progress that moves."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import Final, TextIO

_STYLES: Final = {"title": "1;36", "good": "32", "bad": "31", "dim": "2", "bold": "1"}
_CLEAR_LINE: Final = "\x1b[2K"


class Console:
    """Writes to one stream. Escape codes go to terminals only, colours not if ``NO_COLOR`` is set.

    Lines given to :meth:`live` stand below all others until the next ones take their place.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_live = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._has_colors = self.is_live and not os.environ.get("NO_COLOR")
        self._live_lines = 0

    def line(self, text: str = "", style: str | None = None) -> None:
        """Write a line that stays."""
        self.live(())
        self._write(self.styled(text, style) + "\n")

    def title(self, text: str) -> None:
        """Write the heading of what follows."""
        self.line()
        self.line(text, "title")

    def live(self, lines: Sequence[str]) -> None:
        """Put these lines in the place of the last live ones; nothing happens off a terminal."""
        if not self.is_live or not (lines or self._live_lines):
            return
        up = f"\x1b[{self._live_lines}A" if self._live_lines else ""
        gone = f"{_CLEAR_LINE}\n" * self._live_lines
        width = shutil.get_terminal_size().columns - 1
        shown = "".join(f"{_CLEAR_LINE}{line[:width]}\n" for line in lines)
        self._write(f"{up}{gone}{up}{shown}")
        self._live_lines = len(lines)

    def styled(self, text: str, style: str | None) -> str:
        """The text in a style, where there are colours."""
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if style and self._has_colors else text

    def _write(self, text: str) -> None:
        encoding = self._stream.encoding or "utf-8"
        self._stream.write(text.encode(encoding, "replace").decode(encoding))
        self._stream.flush()
