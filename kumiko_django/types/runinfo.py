"""Frozen facts about one run, as signals carry them."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class RunInfo:
    """One execution of a job, as far as it has come.

    Attributes:
        job_name: Qualified name, e.g. ``billing:job:send-reminders``.
        job_id: The queue's id, the same for all attempts.
        run_id: Primary key of the ``JobRun``.
        tenant_id: The tenant it ran for, never empty (``SYSTEM`` for work of none; B231).
        attempt: 1 for the first.
        final: Whether no attempt follows this one.
        duration: Time from preparation to the end of the handler; None while it runs.
        error: Scrubbed text of what went wrong, or None.
        message_key: Key of what the tenant is told of a final failure, where the job declares one.
    """

    job_name: str
    job_id: str
    run_id: UUID
    tenant_id: str
    attempt: int
    final: bool
    duration: dt.timedelta | None = None
    error: str | None = None
    message_key: str | None = None
