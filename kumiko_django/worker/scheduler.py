"""Schedulers follow the definitions, in every worker process (P48-P54).

Which version's schedules hold: **those of the version that came last.** Each process says every few
seconds which set of schedules it has (the lane's definitions as one digest). A set takes over when
its first process starts while none of it is there; if the set that holds has no process left, one
that is still there takes over. So in a rolling deploy, forwards or back, the first new process
writes its schedules and prunes the others', and old ones, restarted or not, bring nothing back.
Whoever fetches a tick goes on from what stands in Redis, whatever its own version says.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Final

from kumiko_django.broker import scheduler_store as store
from kumiko_django.broker.schedulers import Record, Schedule, moment, now_milliseconds
from kumiko_django.conf import get_settings
from kumiko_django.definitions.job import JobDefinition
from kumiko_django.definitions.options import LANES, Lane
from kumiko_django.definitions.registry import registry
from kumiko_django.exceptions import BrokerUnavailable, DefinitionError, UnknownJobError

logger = logging.getLogger("kumiko_django.worker")

WATCH_SECONDS: Final = 15.0
"""How often broken chains are looked for (P51)."""
BEATS_PER_GAP: Final = 3
STOP_SECONDS: Final = 1.0
_WRAPPER: Final = "_perTenant:"
_TRIES: Final = 5


class LaneSchedules:
    """The schedules of one lane, as a process defines them."""

    def __init__(self, lane: Lane, definitions: Iterable[JobDefinition]) -> None:
        """Take the schedules out of all definitions; nothing is asked of Redis yet."""
        of_lane = [definition for definition in definitions if definition.lane == lane]
        found = [schedule for each in of_lane if (schedule := Schedule.of(each)) is not None]
        self.lane: Lane = lane
        self.schedules = {schedule.id: schedule for schedule in found}
        self._legacy = frozenset(legacy_id(each.qualified_name) for each in of_lane)
        parts = sorted(f"{schedule.id} {schedule.mark}" for schedule in found)
        self._digest = sha256("\n".join(parts).encode()).hexdigest()[:16]
        self._has_spoken = False

    def follow(self) -> None:
        """Say that this process is there; if its set holds, make Redis agree with it.

        Where nothing is scheduled and nothing of ours stands in Redis, nothing is written.

        Raises:
            BrokerUnavailable: Redis does not answer.
        """
        records = store.read(self.lane)
        if not self.schedules and not any(record.mark for record in records):
            return
        gap_ms = round(get_settings().lock_seconds * 1000)
        word = store.Beat(self._digest, gap_ms, starting=not self._has_spoken)
        holds = store.beat(self.lane, word)
        self._has_spoken = True
        if not holds:
            return
        known = {record.id: record for record in records}
        for schedule in self.schedules.values():
            self._write(known.get(schedule.id), schedule)
        for record in records:
            if record.id in self.schedules:
                continue
            if record.mark or record.id in self._legacy:
                self._prune(record)

    def _write(self, record: Record | None, schedule: Schedule) -> None:
        record = record or store.read_one(self.lane, schedule.id)
        for _ in range(_TRIES):
            if record.says(schedule):
                return
            if store.set_up(record, schedule):
                logger.info("scheduled %s: %s", schedule.fields["name"], _told(schedule.fields))
                return
            # Another process was faster, or the tick has just become due.
            record = store.read_one(self.lane, schedule.id)

    def _prune(self, record: Record) -> None:
        """Remove a scheduler whose definition is gone, was renamed, moved or is started otherwise.

        An occurrence that is due stays, if its job is known; a job that is no more has none.
        """
        if store.remove(record, with_due_tick=not _is_known(record)):
            name = record.fields.get("name", record.id)
            logger.info("removed the schedule of %s: nothing defines it any more", name)


def legacy_id(job_name: str) -> str:
    """The id that early versions of the original gave a scheduler: colons and all (B097)."""
    return f"scheduler-{job_name.replace('.', '-')}"


def _is_known(record: Record) -> bool:
    try:
        registry.get(record.fields.get("name", "").removeprefix(_WRAPPER))
    except UnknownJobError:
        return False
    return True


def _told(fields: Mapping[str, str]) -> str:
    if "every" in fields:
        return f"every {int(fields['every']) / 1000:g} s"
    return f"{fields['pattern']} in {fields['tz']}"


def watch(now: dt.datetime, go_on: Callable[[], bool]) -> int:
    """Repair broken chains: a tick that was lost or removed, or whose successor was not made (P51).

    From what stands in Redis, so it does not matter which version does it.

    Args:
        now: The time.
        go_on: Asked between two steps.

    Returns:
        How many were repaired.

    Raises:
        BrokerUnavailable: Redis does not answer.
    """
    repaired = 0
    for lane in LANES:
        for record in store.read(lane):
            if not record.mark:
                continue
            if not go_on():
                return repaired
            try:
                repaired += _repair(record)
            except (DefinitionError, ValueError, LookupError):  # written by a newer version, say
                logger.exception("The schedule %s of lane %s cannot be read", record.id, lane)
    return repaired


def _repair(record: Record) -> bool:
    state = store.tick_state(record)
    if state in ("planned", "due"):
        return False
    now_ms = now_milliseconds()
    is_lost = state == "gone" and (record.tick_ms > now_ms or record.catch_up != "none")
    # A tick that is gone has not run, and is made again: late, as after a time without workers.
    next_ms = record.tick_ms if is_lost else record.next_ms(now_ms)
    if not store.put_next(record, next_ms):
        return False  # somebody else was faster
    if state == "fetched":
        # Mostly the worker that has just fetched it was about to do the same.
        logger.debug("made the tick after %s", record.tick_id)
        return True
    logger.warning(
        "The schedule of %s was broken (its tick for %s %s); it goes on at %s",
        record.fields.get("name"),
        moment(record.tick_ms).isoformat(timespec="seconds"),
        _BROKEN[state],
        moment(next_ms).isoformat(timespec="seconds"),
    )
    return True


_BROKEN: Final = {
    "gone": "was removed",
    "ended": "had no successor",
    "astray": "was in no list of the queue",
}


class Schedules:
    """Follows the definitions of some lanes for as long as the process consumes them."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        """Create it; nothing is looked up yet."""
        self._names = tuple(lanes)
        self._lanes: list[LaneSchedules] = []
        self._stopping = threading.Event()
        self._pause = get_settings().lock_seconds / BEATS_PER_GAP
        self._thread = threading.Thread(target=self._work, name="kumiko-schedules", daemon=True)
        self._is_away = False

    def open(self) -> None:
        """Bring Redis up to date, and go on looking after it in a thread. Blocks.

        If Redis is away for a moment, the thread tries again: what is scheduled already goes on.
        """
        self._lanes = [LaneSchedules(lane, registry.all()) for lane in self._names]
        self._follow()
        self._thread.start()

    def request_stop(self) -> None:
        """Begin nothing new."""
        self._stopping.set()

    def close(self) -> None:
        """Stop; takes a second at most."""
        self.request_stop()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def _work(self) -> None:
        while not self._stopping.wait(self._pause):
            self._follow()

    def _follow(self) -> None:
        for lane in self._lanes:
            try:
                lane.follow()
            except BrokerUnavailable as error:
                if not self._is_away:
                    logger.warning("Schedules are looked after when Redis is back: %s", error)
                self._is_away = True
            except Exception:
                logger.exception("Looking after the schedules of lane %s met a fault", lane.lane)
            else:
                self._is_away = False
