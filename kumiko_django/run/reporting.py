"""Sending the signals of runs."""

from __future__ import annotations

import logging
from typing import Any

from django.dispatch import Signal

from kumiko_django import signals
from kumiko_django.run.outcome import (
    Completed,
    Deferred,
    Failed,
    Outcome,
    Quarantined,
    Skipped,
)
from kumiko_django.run.state import Run
from kumiko_django.run.threads import HandlerThreads

logger = logging.getLogger("kumiko_django.run")

_AT_END: dict[type, Signal] = {
    Completed: signals.job_completed,
    Failed: signals.job_failed,
    Skipped: signals.job_skipped,
    Deferred: signals.job_deferred,
    Quarantined: signals.job_failed,
}


class Reporter:
    """Sends signals in threads, robustly: receivers use the ORM, and change nothing here."""

    def __init__(self, threads: HandlerThreads) -> None:
        self._threads = threads

    def reports_end(self, run: Run, outcome: Outcome) -> bool:
        """Whether anybody listens to the signal of this outcome."""
        signal = _AT_END.get(type(outcome))
        return signal is not None and signal.has_listeners(run.definition)

    async def report_end(self, run: Run, outcome: Outcome) -> None:
        """Send the signal of this outcome, if there is one."""
        signal = _AT_END.get(type(outcome))
        if signal is None:
            return
        told: dict[str, Any] = {"outcome": outcome, "logs": run.log_lines}
        if isinstance(outcome, Skipped):
            told["reason"] = outcome.reason
        await self.report(signal, run, **told)

    async def report(self, signal: Signal, run: Run, **arguments: Any) -> None:
        """Send a signal to those who listen."""
        sender = run.definition
        if not signal.has_listeners(sender):
            return
        info = run.info()

        def send() -> BaseException | None:
            try:
                signal.send_robust(sender=sender, run=info, **arguments)
            except BaseException as error:  # noqa: BLE001
                # send_robust passes SystemExit and its like on; on the loop they would end us.
                return error
            return None

        error = await self._threads.run(send, run.surroundings())
        if error is not None:
            logger.error("A receiver of a signal about run %s broke off: %r", run.run_id, error)
