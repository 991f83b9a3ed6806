"""What starts a job. Exactly one trigger belongs to each definition (B002)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Manual:
    """Nothing starts the job by itself: only a dispatch does."""


Trigger = Manual
