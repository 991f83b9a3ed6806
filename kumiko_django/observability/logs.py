"""The run on log records, for the host's ``LOGGING``."""

from __future__ import annotations

import logging

from kumiko_django.types import ambient

FIELDS = ("run_id", "job_name", "job_id", "tenant_id", "correlation_id", "request_id")
"""What each record has after :class:`RunContextFilter`."""


class RunContextFilter(logging.Filter):
    """Says on each record which run it was written in. It lets every record pass.

    Whoever logs in a run is meant: its handler, whatever that calls, its tasks, and its threads as
    far as they have its context (``asyncio.to_thread`` and ``sync_to_async`` see to that, a plain
    ``threading.Thread`` does not). It has to look while the record is made, so put it on a handler
    that works at once: the one before a queue.

    What a record has already, by ``extra``, stays. Outside of runs, tenant, correlation and request
    are those of the scope, if there is one; what is not known is an empty text.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields."""
        ids, scope = ambient.run.get(), ambient.scope.get()
        values = (
            "" if ids is None else str(ids.run_id),
            ambient.handler.get() or "",
            "" if ids is None else ids.job_id,
            "" if scope is None else scope.tenant_id,
            ambient.correlation_id.get() or "",
            ambient.request_id.get() or "",
        )
        for field, value in zip(FIELDS, values, strict=True):
            if field not in record.__dict__:
                record.__dict__[field] = value
        return True
