"""What the recorder is told: frozen facts about a run, complete in themselves."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from kumiko_django.types.jsonable import JSON
from kumiko_django.types.visible import Visible

EndStatus = Literal[
    "completed", "failed", "interrupted", "lost", "skipped", "cancelled", "quarantined", "deferred"
]
Level = Literal["info", "warn", "error"]


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run began."""

    run_id: UUID
    job_name: str
    lane: str
    queue_job_id: str
    queue_created_at: dt.datetime
    attempt: int
    max_attempts: int
    start: int
    tenant_id: str
    payload: JSON
    started_at: dt.datetime
    enqueued_at: dt.datetime
    wait_ms: int | None
    worker: str
    losses: int = 0
    """How many earlier runs of the job the queue counts as lost; not a column."""
    triggered_by_id: str | None = None
    trigger: str = ""
    correlation_id: str = ""
    trace_id: str = ""
    parent: UUID | None = None
    deferrals: int = 0
    """How often this run has been deferred before; above zero it goes on."""
    visible: Visible | None = None
    """What its tenant may see of it; no column."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a run's log."""

    number: int
    level: Level
    message: str
    data: dict[str, JSON]
    created_at: dt.datetime

    @property
    def text(self) -> str:
        """The message and, if there is any, its data as JSON (B177)."""
        return f"{self.message} {json.dumps(self.data)}" if self.data else self.message


@dataclass(frozen=True, slots=True)
class RunEnded:
    """A run came to its end, or was deferred."""

    run_id: UUID
    status: EndStatus
    final: bool
    finished_at: dt.datetime
    duration_ms: int
    reason: str = ""
    result: JSON = None
    error: str = ""
    fingerprint: str = ""
    traceback: str = ""
    progress: JSON = None
    object_ref: str = ""
    deferrals: int = 0
    """How often the run has been deferred, this time included."""
    resume_at: dt.datetime | None = None
    """When a deferred run goes on."""
    visible: Visible | None = None
    """What its tenant may see of it, as the start says, with the message of this end."""

    @property
    def is_turn(self) -> bool:
        """Whether the run's row has been, or will be, written at other times too."""
        return self.deferrals > 0
