"""Dispatches jobs at an even pace: ``pace PER_SECOND COUNT``, async and sync handlers in turn.

Each payload says when it was dispatched, on the clock of this machine.
"""

from __future__ import annotations

import sys
import time

import django

django.setup()

from kumiko_django import dispatch  # noqa: E402  (needs the setup)


def main(per_second: int, count: int) -> None:
    """Keep to the timetable; a late dispatch does not move those after it."""
    began = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, began + number / per_second - time.monotonic()))
        mode = "async" if number % 2 else "sync"
        dispatch(f"bench:job:stamp-{mode}", {"number": number, "sent": time.time()})


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
