"""A fetched tick makes the next one: from its record, in one step, before it is handed on (P51).

The package does so with croniter, an hour off when clocks change (bullmq-python 1.7), and in a call
whose failure cuts the chain. It still does for schedulers of other clients.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from redis.exceptions import RedisError

from kumiko_django.broker.channel import Channel
from kumiko_django.broker.scheduler_scripts import CHANGED, DONE
from kumiko_django.broker.schedulers import (
    Record,
    moment,
    now_milliseconds,
    put,
    record_keys,
    state_key,
)
from kumiko_django.definitions.options import Lane

logger = logging.getLogger("kumiko_django.broker")

MISSED: Final = "missed: no worker was there, and catch_up is 'none'"
"""Why an occurrence does not run."""
_SCHEDULER: Final = "rjk"
"""Where a job names its scheduler."""
_TRIES: Final = 10


class Ticks:
    """Looks after the ticks that a lane's worker fetches. Bound to the running event loop."""

    def __init__(self, channel: Channel, lane: Lane, gap_ms: int) -> None:
        """Create it.

        Args:
            channel: Where scripts go.
            lane: The lane.
            gap_ms: After so many milliseconds without a word a lane counts as without workers.
        """
        self._channel = channel
        self._lane: Lane = lane
        self._gap_ms = gap_ms

    async def advance(self, data: dict[str, str], job_id: str) -> tuple[dict[str, str], bool]:
        """Make the next tick if this is one; most jobs are none, and cost nothing here.

        Returns:
            The job's fields, without the scheduler's name where the package must not go on from
            it; and whether the tick was missed while nothing ran, and its rule is ``none``.
        """
        scheduler = data.get(_SCHEDULER)
        if not scheduler:
            return data, False
        fields = {name: value for name, value in data.items() if name != _SCHEDULER}
        try:
            record = await self._read(scheduler)
            if record.fields and not record.mark:
                return data, False  # another client's: the package goes on
            is_pending = bool(record.fields) and record.tick_id == job_id
            # Decided by the record that holds now; the next one may be another.
            missed = is_pending and await self._was_missed(record, data)
            if is_pending:
                await self._make_next(record, job_id)
        except (RedisError, OSError):
            # The watchdog makes it; the run must not wait for that.
            logger.warning("The tick after %s could not be made now", job_id, exc_info=True)
            return fields, False
        return fields, missed

    async def _make_next(self, record: Record, job_id: str) -> None:
        after = now_milliseconds()
        for _ in range(_TRIES):
            try:
                next_ms = record.next_ms(after)
                call = put(record, next_ms)
            except Exception:
                # Written by a newer version, say. The run itself is not to blame.
                logger.exception("The tick after %s cannot be told from its record", job_id)
                return
            answer = await self._channel.run(call.script, call.keys, call.args)
            if answer == DONE:
                return
            if answer == CHANGED:
                record = await self._read(record.id)
                if record.tick_id != job_id or not record.mark:
                    return  # made by another process, or the scheduler is gone
            else:
                after = next_ms  # it has run before: clocks differ
        logger.warning("The tick after %s could not be made; the watchdog will", job_id)

    async def _read(self, scheduler: str) -> Record:
        schedulers, record = record_keys(self._lane, scheduler)
        fields, score = await asyncio.gather(
            self._channel.execute("HGETALL", record),
            self._channel.execute("ZSCORE", schedulers, scheduler),
        )
        return Record(self._lane, scheduler, pairs(fields), score or "")

    async def _was_missed(self, record: Record, data: Mapping[str, str]) -> bool:
        late_ms = now_milliseconds() - record.tick_ms
        if record.catch_up != "none" or late_ms <= self._gap_ms:
            return False
        if data.get("atm", "0") not in ("", "0") or data.get("ats", "1") not in ("", "1"):
            return False  # it has begun before
        answer = await self._channel.execute(
            "HMGET", state_key(self._lane), "seen", "since", "gone"
        )
        return was_missed(record.tick_ms, now_milliseconds(), self._gap_ms, answer)


def was_missed(tick_ms: int, now_ms: int, gap_ms: int, state: list[Any]) -> bool:
    """Whether a tick became due while its lane had no worker.

    Args:
        tick_ms: When it was due.
        now_ms: The time.
        gap_ms: How long a lane may be without a word before it counts as without workers.
        state: Last word of a worker, beginning of the time in which there have always been some,
            last word before that: texts in milliseconds, or None.
    """
    seen, since, gone = (int(value or 0) for value in state)
    if now_ms - seen > gap_ms:
        # Nobody has spoken yet since Redis was away, or since all workers were gone.
        return tick_ms > seen
    return gone < tick_ms < since


def pairs(flat: list[Any]) -> dict[str, str]:
    """Fields and values as a mapping."""
    return {str(flat[n]): str(flat[n + 1]) for n in range(0, len(flat), 2)}


def tell_missed(job_name: str, job_id: str) -> None:
    """Say that an occurrence does not run."""
    due = moment(int(job_id.rsplit(":", 1)[1]))
    logger.warning(
        "%s does not run for %s: no worker was there, and its catch_up is 'none'",
        job_name, due.isoformat(timespec="seconds"),
    )  # fmt: skip
