"""What became of a job, as a call of the package's scripts."""

from __future__ import annotations

import json
from typing import Any, Final

from bullmq.job import Job

from kumiko_django.broker.bullmq import QueueScripts, ScriptCall
from kumiko_django.broker.delivery import Complete, Fail, GiveBack, Postpone, Retry, Settlement
from kumiko_django.conf import get_settings

LARGEST_NUMBER: Final = 2**31 - 1
"""What the history's columns hold; a foreign producer may have stored anything."""


def call(
    scripts: QueueScripts, job: Job, token: str, settlement: Settlement, *, fetch: bool
) -> ScriptCall:
    """The script call that tells the queue what became of a running job.

    Args:
        scripts: Script builder of the queue.
        job: The job, as it was fetched.
        token: Its lock.
        settlement: What became of it.
        fetch: Take the next job in the same step, where the script can.
    """
    settings = get_settings()
    match settlement:
        case Complete(result):
            keep = _retention(job.opts.get("removeOnComplete"), settings.completed_age)
            return scripts.complete(job, result, keep, token, fetch=fetch)
        case Fail(error, trace, forgives_losses):
            keep = _retention(job.opts.get("removeOnFail"), settings.failed_age)
            fields = _failure_fields(error, trace)
            if forgives_losses:
                fields["stc"] = "0"
            return scripts.fail(job, fields, keep, token, fetch=fetch)
        case Retry(delay_ms, error, trace, data):
            fields = _failure_fields(error, trace)
            if data is not None:
                fields["data"] = data
            if delay_ms > 0:
                return scripts.delay(job, delay_ms, token, fields, skip_attempt=False)
            return scripts.retry(job, token, fields)
        case Postpone(delay_ms, data):
            # The package's script checks the lock before it writes the data (P95).
            return scripts.delay(job, delay_ms, token, {"data": data}, skip_attempt=True)
        case GiveBack(data):
            return scripts.put_back(str(job.id), token, data)


def error_of(settlement: Settlement) -> str | None:
    """The error to keep with a job that cannot be settled by a script."""
    match settlement:
        case Complete():
            return None
        case Fail(error=error) | Retry(error=error):
            return error
        case GiveBack() | Postpone():
            return "it could not be given back to the queue"


def _failure_fields(error: str, trace: str) -> dict[str, str]:
    # A lone surrogate has no bytes; the job would stay where it is, and run again.
    reason = error.encode("utf-8", "replace").decode()
    return {"failedReason": reason, "stacktrace": json.dumps([trace] if trace else [])}


def _retention(stored: Any, age: int) -> Any:
    """What the job's producer asked for, where it ends at some time; else our own age (1.20)."""
    if stored is True:
        return True
    if _is_count(stored):
        return int(stored)
    if isinstance(stored, dict):
        kept = {key: stored[key] for key in ("age", "count", "limit") if _is_count(stored.get(key))}
        if "age" in kept or "count" in kept:
            return kept
    return {"age": age}


def _is_count(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 <= value <= LARGEST_NUMBER
