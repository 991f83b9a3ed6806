"""Jobs whose names nobody here knows: put back for a time (user-needs 7, design's first page).

In a rolling deploy the workers of one version meet the jobs of the other. So such a job waits in
``delayed`` and comes again, until a worker that knows it takes it or ``UNKNOWN_JOB_AGE`` is over.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from kumiko_django.broker.carried import UNKNOWN_SINCE, read_count, unknown_data
from kumiko_django.broker.delivery import Delivery, Postpone
from kumiko_django.conf import get_settings
from kumiko_django.exceptions import UnknownJobError
from kumiko_django.observability import names
from kumiko_django.observability.guarded import GuardedMeter
from kumiko_django.run import per_tenant
from kumiko_django.run.failure import Refused

logger = logging.getLogger("kumiko_django.run")

FIRST_PAUSE_MS: Final = 1_000
LONGEST_PAUSE_MS: Final = 300_000


class UnknownJobs:
    """Puts jobs back, counts them, and says so once for each name in a process."""

    def __init__(self, meter: GuardedMeter | None = None) -> None:
        self._meter = meter
        self._told: set[str] = set()

    def put_back(self, delivery: Delivery, now_ms: int | None = None) -> Postpone | None:
        """What the queue shall do with a job that nobody here knows.

        Args:
            delivery: The job.
            now_ms: Milliseconds since 1970; without it, now.

        Returns:
            None if the job is known, or its time is over: then it runs, or fails.
        """
        if delivery.queue_failure or not isinstance(delivery.data, dict):
            return None
        try:
            per_tenant.find_definition(delivery.job_name)
        except UnknownJobError:
            return self._postpone(delivery, now_ms or round(time.time() * 1000))
        except Refused:
            pass  # known, and not to be run
        return None

    def _postpone(self, delivery: Delivery, now_ms: int) -> Postpone | None:
        since_ms = min(read_count(delivery.data, UNKNOWN_SINCE) or now_ms, now_ms)
        waited_ms = now_ms - since_ms
        left_ms = round(get_settings().unknown_job_age * 1000) - waited_ms
        if left_ms <= 0:
            return None
        # As long again as it has waited already: the pauses double.
        pause_ms = min(max(waited_ms, FIRST_PAUSE_MS), LONGEST_PAUSE_MS, left_ms)
        self._tell(delivery, pause_ms, left_ms)
        return Postpone(max(pause_ms, 1), unknown_data(delivery, since_ms))

    def _tell(self, delivery: Delivery, pause_ms: int, left_ms: int) -> None:
        if self._meter is not None:
            self._meter.count(names.PUT_BACK.name, lane=delivery.lane)
        first = delivery.job_name not in self._told
        self._told.add(delivery.job_name)
        logger.log(
            logging.WARNING if first else logging.DEBUG,
            "No job is called %r here; job %s is put back and looked at again in %g s, for %g s "
            "at most. It waits for a worker of another release, or for an alias.",
            delivery.job_name,
            delivery.job_id,
            pause_ms / 1000,
            left_ms / 1000,
            extra={"job_name": delivery.job_name, "job_id": delivery.job_id},
        )
