"""What a dispatch comes to (P09)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Status: TypeAlias = Literal["queued", "failed"]


@dataclass(frozen=True, slots=True)
class Dispatched:
    """The answer to a dispatch. True when the work was accepted.

    Attributes:
        status: ``queued``: it is in the queue, or will be as soon as the transaction commits;
            ``failed``: one of the jobs of an event could not be queued (``emit`` only).
        job_id: The job's id, known before Redis is asked; store it to find the runs later.
        reason: ``after-commit`` while a transaction is open; what failed; else None.
    """

    status: Status
    job_id: str
    reason: str | None = None

    def __bool__(self) -> bool:
        return self.status == "queued"
