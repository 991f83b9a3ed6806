"""Writing records that their workers have not lived to write (design 9)."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from django.db import router

from kumiko_django.broker.records import drop_records, stored_records
from kumiko_django.definitions.options import LANES, Lane
from kumiko_django.history.batch import Batch, Ended
from kumiko_django.history.events import LogLine, RunEnded, RunStarted
from kumiko_django.history.models import JobRun
from kumiko_django.history.record import UnreadableRecord, decode
from kumiko_django.history.writer import write

logger = logging.getLogger("kumiko_django.worker")

INTERVAL: Final = 5.0
"""Seconds between two looks."""
AGE: Final = dt.timedelta(seconds=5)
"""A record that has waited so long is taken for left behind. If its worker is only slow, both write
the same."""
_CHUNK: Final = 200


@dataclass(frozen=True, slots=True)
class _Found:
    field: str
    record: str
    start: RunStarted
    ended: RunEnded
    lines: list[LogLine]


def recover(now: dt.datetime, go_on: Callable[[], bool]) -> int:
    """Write the records that wait beside the queues for longer than :data:`AGE`.

    Args:
        now: The time.
        go_on: Asked between two steps.

    Returns:
        How many were written.

    Raises:
        BrokerUnavailable: Redis does not answer.
        DatabaseError: The database is away; what has been written stays so.
    """
    written = 0
    for lane in LANES:
        found = sorted(_left_behind(lane, now), key=_order)
        for first in range(0, len(found), _CHUNK):
            if not go_on():
                return written
            written += _write(lane, found[first : first + _CHUNK])
    if written:
        logger.info("wrote the records of %d runs that their workers had left behind", written)
    return written


def _left_behind(lane: Lane, now: dt.datetime) -> Iterable[_Found]:
    for portion in stored_records(lane):
        unreadable = []
        for field, record in portion.items():
            try:
                found = _Found(field, record, *decode(record))
            except UnreadableRecord:
                logger.exception("The record %s of lane %s is dropped", field, lane)
                unreadable.append(field)
                continue
            if found.ended.finished_at <= now - AGE:
                yield found
        if unreadable:
            drop_records(lane, unreadable)


def _order(found: _Found) -> tuple[dt.datetime, str, int, int]:
    # A later run of a job closes those before it that still stand on running.
    start = found.start
    return start.queue_created_at, start.queue_job_id, start.start, start.deferrals


def _write(lane: Lane, found: list[_Found]) -> int:
    batch = Batch()
    for item in found:
        batch.add_found(item.start, Ended(item.ended, Future(), item.record), item.lines)
    results = write(router.db_for_write(JobRun), batch)
    # One that cannot be written has been told of by the writer; it would not be better next time.
    drop_records(lane, [item.field for item in found])
    outcomes = [*results.values(), *(turn.result for turn in batch.turns)]
    return sum(1 for result in outcomes if result is True)
