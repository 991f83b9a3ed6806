"""What holds for a job at the door; made by the room ``admission``, told to Redis as it stands."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules for one job. Names are those that the scripts use; empty and 0 are left out there.

    Attributes:
        mode: The definition's ``concurrency``.
        mode_key: Key whose places ``skip``, ``replace`` and ``debounce`` look at.
        cap_key: Key whose places ``max_per_tenant`` counts.
        cap: That number.
        parks_over_cap: Over the cap the job is not skipped but waits, as children of a fan-out do.
        slot_key: Key whose slots allow to run.
        slots: How many there are.
        window_key: Key of a throttle's window.
        window_ms: Length of that window, or of a debounce's quiet time.
        max_wait_ms: How long a debounced job waits at most.
    """

    mode: str
    mode_key: str = ""
    cap_key: str = ""
    cap: int = 0
    parks_over_cap: bool = False
    slot_key: str = ""
    slots: int = 0
    window_key: str = ""
    window_ms: int = 0
    max_wait_ms: int = 0
