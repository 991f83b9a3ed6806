"""Values of the commands' options."""

from __future__ import annotations

import argparse

from kumiko_django.history.retention import LARGEST_BATCH


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


def batch_size(text: str) -> int:
    """How many rows are looked at or deleted in one step.

    Raises:
        ArgumentTypeError: It is no whole number from 1 to :data:`LARGEST_BATCH`.
    """
    value = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= value <= LARGEST_BATCH:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a whole number from 1 to {LARGEST_BATCH:,}"
        )
    return value
