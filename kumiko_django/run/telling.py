"""What the process log says of runs, with what is needed to find them."""

from __future__ import annotations

import logging

from kumiko_django.run.outcome import Failed, Quarantined, Skipped
from kumiko_django.run.state import Run
from kumiko_django.types.ids import SYSTEM

logger = logging.getLogger("kumiko_django.run")

_LOST_DEFERRAL = (
    "ctx.defer() was called and did nothing: its result was neither returned nor raised. "
    "Write `return ctx.defer(...)` or `raise ctx.defer(...)`."
)


def log_failure(run: Run, outcome: Failed) -> None:
    """An attempt has failed (B130)."""
    delivery = run.delivery
    logger.log(
        logging.ERROR if outcome.final else logging.WARNING,
        "Job %s (%s) of %s failed on attempt %d of %d%s: %s",
        delivery.job_name,
        delivery.job_id,
        _tenant(run),
        delivery.attempt,
        delivery.max_attempts,
        ", finally" if outcome.final else f"; the next in {outcome.retry_ms / 1000:g} s",
        outcome.error,
        extra={**_where(run), "final": outcome.final},
    )


def log_refusal(run: Run, outcome: Failed | Quarantined) -> None:
    """A run whose handler is not called has failed, or its job will not be run again."""
    if isinstance(outcome, Failed):
        log_failure(run, outcome)
    else:
        log_quarantine(run, outcome)


def log_quarantine(run: Run, outcome: Quarantined) -> None:
    """A job will not be run again."""
    logger.error(
        "Job %s (%s) is quarantined: %s",
        run.delivery.job_name,
        run.delivery.job_id,
        outcome.error,
        extra=_where(run),
    )


def log_deferral(run: Run, delay_ms: int, count: int) -> None:
    """A run is put off."""
    logger.info(
        "Job %s (%s) of %s is deferred for %g s, for the %d. time of %d",
        run.delivery.job_name,
        run.delivery.job_id,
        _tenant(run),
        delay_ms / 1000,
        count,
        run.known_definition.max_defers,
        extra=_where(run),
    )


def log_lost_deferral(run: Run) -> None:
    """A deferral was made and not used; the run's own log says it too (P97)."""
    run.warn(_LOST_DEFERRAL)
    logger.warning("Job %s: %s", run.delivery.job_name, _LOST_DEFERRAL, extra=_where(run))


def log_skip(run: Run, outcome: Skipped) -> None:
    """A handler was not called, and need not be."""
    logger.info(
        "Job %s (%s) of %s skipped: %s",
        run.delivery.job_name,
        run.delivery.job_id,
        _tenant(run),
        outcome.reason,
        extra=_where(run),
    )


def log_completion(run: Run) -> None:
    """A run has ended well."""
    if not logger.isEnabledFor(logging.INFO):  # the one line of nearly every run
        return
    logger.info(
        "Job %s (%s) of %s completed",
        run.delivery.job_name,
        run.delivery.job_id,
        _tenant(run),
        extra=_where(run),
    )


def _where(run: Run) -> dict[str, object]:
    """What :class:`~kumiko_django.observability.logs.RunContextFilter` adds inside of a run."""
    return {
        "run_id": str(run.run_id),
        "job_name": run.name,
        "job_id": run.delivery.job_id,
        "tenant_id": run.tenant_id,
        "correlation_id": run.correlation_id,
        "request_id": run.request_id,
    }


def _tenant(run: Run) -> str:
    return "no tenant" if run.tenant_id == SYSTEM else f"tenant {run.tenant_id}"
