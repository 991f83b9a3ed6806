"""Values of the commands' options."""

from __future__ import annotations

import argparse


def seconds(text: str) -> float:
    """Seconds from 0 on.

    Raises:
        ArgumentTypeError: It is something else.
    """
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 on")
    return value
