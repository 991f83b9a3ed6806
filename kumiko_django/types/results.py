"""What a dispatch comes to (P09)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Status: TypeAlias = Literal[
    "queued", "parked", "skipped", "debounced", "throttled", "replaced", "failed"
]
_REFUSED: Final = ("skipped", "throttled", "failed")


@dataclass(frozen=True, slots=True)
class Dispatched:
    """The answer to a dispatch. True when the work was accepted.

    Attributes:
        status: ``queued``: it is in the queue, or will be as soon as the transaction commits.
            ``parked``: it waits for its turn. ``replaced``, ``debounced``: it has taken the place
            of one that was dispatched before. ``skipped``, ``throttled``: it does not run.
            ``failed``: one of the jobs of an event could not be queued (``emit`` only).
        job_id: The job's id, known before Redis is asked; store it to find the runs later.
        reason: ``after-commit`` while a transaction is open: the rest is decided then. Else None
            where it is queued; what failed; or why it is not just queued: ``skipped``,
            ``skipped:max-per-tenant``, ``throttled``, ``debounced``, ``replaced``, ``sequential``.
    """

    status: Status
    job_id: str
    reason: str | None = None

    def __bool__(self) -> bool:
        return self.status not in _REFUSED
