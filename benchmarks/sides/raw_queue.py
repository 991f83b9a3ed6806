"""The queue of the raw side, and its address as a URL for the ``bullmq`` package."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from benchmarks.project.payloads import RETENTION, payload

QUEUE = "bench-raw"
NAME = "bench"


def redis_url() -> str:
    """The Redis of this run, for bullmq."""
    return os.environ["REDIS_URL"] + "?socket_timeout=60"


def jobs(numbers: range) -> Iterator[dict[str, Any]]:
    """Jobs as ``Queue.addBulk`` takes them."""
    for number in numbers:
        yield {"name": NAME, "data": payload(number), "opts": RETENTION}
