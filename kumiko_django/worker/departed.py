"""Deferred runs that cannot go on, since their jobs are no longer in the queue (P98).

A later dispatch of ``replace`` has taken the job's place, or another client has removed it. Nobody
runs it again, so nobody else would close its row.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final
from uuid import UUID

from django.db import router

from kumiko_django.broker.producer import known_ids
from kumiko_django.broker.records import stored_records
from kumiko_django.definitions.options import LANES, Lane
from kumiko_django.history.clean import is_altered
from kumiko_django.history.models import JobRun, RunStatus
from kumiko_django.history.turns import DEPARTED

logger = logging.getLogger("kumiko_django.worker")

INTERVAL: Final = 30.0
"""Seconds between two passes."""
CHUNK: Final = 500
"""Rows at a time: one statement and one command."""
MOST: Final = 10_000
"""Rows of one pass; the next one goes on from there."""


class Departed:
    """Ends the rows, pass by pass. What it remembers between two passes only spreads the work."""

    def __init__(self) -> None:
        self._seen_until: UUID | None = None

    def run(self, now: dt.datetime, go_on: Callable[[], bool]) -> int:
        """Look at deferred runs, oldest first.

        Args:
            now: The time.
            go_on: Asked between two steps.

        Returns:
            How many rows were ended.

        Raises:
            BrokerUnavailable: Redis does not answer.
            DatabaseError: The database is away.
        """
        ended = 0
        for rows in self._portions():
            if not go_on():
                break
            for lane in LANES:
                ended += _end(lane, now, [row for row in rows if row.lane == lane])
        if ended:
            logger.info("ended %d deferred runs whose jobs are no longer in the queue", ended)
        return ended

    def _portions(self) -> Iterator[list[JobRun]]:
        for _ in range(0, MOST, CHUNK):
            rows = _deferred(self._seen_until)
            self._seen_until = rows[-1].id if len(rows) == CHUNK else None
            if rows:
                yield rows
            if self._seen_until is None:
                return


def _deferred(after: UUID | None) -> list[JobRun]:
    alias = router.db_for_write(JobRun)
    rows = JobRun.objects.using(alias).filter(status=RunStatus.DEFERRED)
    if after is not None:
        rows = rows.filter(id__gt=after)
    return list(rows.only("lane", "queue_job_id", "queue_created_at").order_by("id")[:CHUNK])


def _end(lane: Lane, now: dt.datetime, rows: Sequence[JobRun]) -> int:
    """End those whose jobs are gone.

    A job that has ended since the rows were read may be gone, too. Then its record stands beside
    the queue, from the same step on, until the history has it: so that is looked at second, and the
    row ends only if it is deferred still. Of ids that no column holds nothing can be asked.
    """
    there = known_ids(lane, [row.queue_job_id for row in rows])
    gone = [
        row
        for row in rows
        if row.queue_job_id not in there and not is_altered(row.queue_job_id, "queue_job_id")
    ]
    if not gone:
        return 0
    unwritten = {field.rsplit("/", 2)[0] for portion in stored_records(lane) for field in portion}
    ids = [row.id for row in gone if row.queue_job_id not in unwritten]
    alias = router.db_for_write(JobRun)
    return (
        JobRun.objects.using(alias)
        .filter(id__in=ids, status=RunStatus.DEFERRED)
        .update(
            status=RunStatus.CANCELLED,
            reason=DEPARTED,
            final=True,
            finished_at=now,
            resume_at=None,
        )
    )
