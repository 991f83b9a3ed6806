"""What a worker process is asked to do."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from uuid import uuid4

from kumiko_django.definitions.options import Lane


def _new_worker_id() -> str:
    """Unique per process start: a restarted pod keeps its name, and must not look alive."""
    return f"{socket.gethostname()[:64]}:{os.getpid()}:{uuid4().hex[:8]}"


@dataclass(frozen=True, slots=True)
class HostConfig:
    """One process.

    Attributes:
        lanes: The lanes it consumes.
        concurrency: Jobs at a time, for each lane.
        grace_seconds: How long running jobs may go on after the first signal.
        drain: End when nothing is left to do.
        connect_seconds: How long to try to reach Redis at the start (B213).
        worker_id: Names this process in the history and in Redis.
    """

    lanes: tuple[Lane, ...]
    concurrency: int
    grace_seconds: float
    drain: bool = False
    connect_seconds: float = 10.0
    worker_id: str = field(default_factory=_new_worker_id)
