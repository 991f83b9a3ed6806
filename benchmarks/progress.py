"""Progress lines on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

Say = Callable[[str], None]

_BEGAN = time.monotonic()


def say(text: str) -> None:
    """One line, with the time since the start."""
    seconds = round(time.monotonic() - _BEGAN)
    sys.stderr.write(f"[{seconds // 60:2}:{seconds % 60:02}] {text}\n")
    sys.stderr.flush()
