"""How a run has ended, as the history keeps it."""

from __future__ import annotations

from typing import Any

from kumiko_django.run.outcome import (
    Completed,
    Deferred,
    Failed,
    Interrupted,
    Outcome,
    Quarantined,
    Skipped,
)


def how_it_ended(outcome: Outcome) -> dict[str, Any]:
    """The status of a run, and what else its outcome has for its record."""
    match outcome:
        case Completed(result, note):
            return {"status": "completed", "result": result, "reason": note}
        case Failed(error=error, traceback=trace, fingerprint=fingerprint):
            return {
                "status": "failed", "error": error, "traceback": trace, "fingerprint": fingerprint,
            }  # fmt: skip
        case Interrupted(reason):
            return {"status": "interrupted", "reason": reason}
        case Skipped(reason):
            return {"status": "skipped", "reason": reason}
        case Deferred(resume_at=resume_at):
            return {"status": "deferred", "resume_at": resume_at}
        case Quarantined(error):
            return {"status": "quarantined", "error": error}
