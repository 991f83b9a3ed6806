"""What has to be done now and then by one worker of all: statistics, old runs.

Each task has a thread of its own in every worker process, and a lease in Redis that one of them
holds. None of it may hold up the worker: a database or a Redis that is away is waited for, and a
stop waits for nothing.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from django.db import connections
from django.utils import timezone

from kumiko_django.admission import sweeper
from kumiko_django.audit import retention as audit_retention
from kumiko_django.broker.lease import Lease, read_note, write_note
from kumiko_django.conf import get_settings
from kumiko_django.exceptions import BrokerUnavailable
from kumiko_django.history import retention, visible_upkeep
from kumiko_django.history.health import is_away
from kumiko_django.history.rollup import RollUp
from kumiko_django.worker import departed, recovery, scheduler
from kumiko_django.worker.departed import Departed

logger = logging.getLogger("kumiko_django.worker")

STOP_SECONDS: Final = 1.0
"""How long a stop waits for all tasks together; what is not done by then ends with the process."""
NIGHT: Final = dt.time(3)
"""When old runs are pruned, in Django's ``TIME_ZONE``."""
LAST_PRUNED: Final = "prune:last"
_NOTE_SECONDS: Final = 7 * 24 * 60 * 60
_LEASE_LOCKS, _TRIES_PER_LEASE = 2, 3


class GoOn(Protocol):
    """Asked by a task between two steps; keeps its lease. False: stop where you are."""

    def __call__(self, seconds: float = 0.0) -> bool:
        """Wait ``seconds``, or until the worker stops, and answer."""
        ...


@dataclass(frozen=True, slots=True)
class Task:
    """Something to be done by one worker at a time.

    Attributes:
        name: Names its lease.
        interval: Seconds from one beginning to the next.
        run: Does it, given the time. A step between two calls of its ``go_on`` should be shorter
            than the lease; whatever takes longer must be right when two do it.
        rest: It begins again no sooner than so many times its last duration.
    """

    name: str
    interval: float
    run: Callable[[dt.datetime, GoOn], object]
    rest: float = 0.0


def default_tasks() -> list[Task]:
    """The tasks of every worker."""
    return [
        Task("schedules", scheduler.WATCH_SECONDS, scheduler.watch),
        Task("recovery", recovery.INTERVAL, recovery.recover),
        Task("departed", departed.INTERVAL, Departed().run),
        Task("roll-up", 60.0, RollUp().run, rest=20.0),
        Task("prune", 60.0, prune_nightly),
        Task("audit", audit_retention.INTERVAL, audit_retention.prune),
        Task("visible", visible_upkeep.INTERVAL, visible_upkeep.look_after, rest=20.0),
        Task("admission", sweeper.interval(), sweeper.sweep),
    ]


def last_night(now: dt.datetime) -> dt.datetime:
    """The latest :data:`NIGHT` that is not after ``now``, in UTC."""
    zone = timezone.get_default_timezone()
    day = now.astimezone(zone).date()
    tonight = dt.datetime.combine(day, NIGHT, zone).astimezone(dt.UTC)
    if tonight <= now:
        return tonight
    return dt.datetime.combine(day - dt.timedelta(days=1), NIGHT, zone).astimezone(dt.UTC)


def prune_nightly(now: dt.datetime, go_on: GoOn) -> None:
    """Prune the history unless that has been done since last night."""
    age = get_settings().history_age
    if age is None:
        return
    note = read_note(LAST_PRUNED)
    if note is not None and dt.datetime.fromisoformat(note) >= last_night(now):
        return
    done = retention.prune(dt.timedelta(seconds=age), now=now, go_on=go_on)
    if done.finished:
        write_note(LAST_PRUNED, now.isoformat(), _NOTE_SECONDS)
    if done.runs:
        logger.info("pruned the history: %d runs, %d log lines", done.runs, done.logs)


def _utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class Housekeeping:
    """Does the tasks whose leases it gets. Used once."""

    def __init__(
        self,
        tasks: Sequence[Task] | None = None,
        *,
        now: Callable[[], dt.datetime] = _utc_now,
        lease_seconds: float | None = None,
    ) -> None:
        """Create it; nothing runs yet.

        Args:
            tasks: What to do.
            now: The clock by which tasks go.
            lease_seconds: How long after its owner's death a task is taken over; without it, two
                times ``LOCK_SECONDS``.
        """
        self._stopping = threading.Event()
        seconds = lease_seconds or get_settings().lock_seconds * _LEASE_LOCKS
        redis = _Trouble("Housekeeping")
        self._keepers = [
            _Keeper(task, Lease(task.name, seconds), seconds, self._stopping, redis, now)
            for task in (default_tasks() if tasks is None else tasks)
        ]

    def open(self) -> None:
        """Start the threads."""
        for keeper in self._keepers:
            keeper.thread.start()

    def request_stop(self) -> None:
        """Begin nothing new; what is under way ends with its step, and leases are given back."""
        self._stopping.set()

    def close(self) -> None:
        """Stop; takes a second at most, whatever the tasks are doing."""
        self.request_stop()
        deadline = time.monotonic() + STOP_SECONDS
        for keeper in self._keepers:
            if keeper.thread.is_alive():
                keeper.thread.join(max(deadline - time.monotonic(), 0))


class _Keeper:
    """One task, its lease and its thread."""

    def __init__(
        self,
        task: Task,
        lease: Lease,
        lease_seconds: float,
        stopping: threading.Event,
        redis: _Trouble,
        now: Callable[[], dt.datetime],
    ) -> None:
        self._task, self._lease, self._stopping, self._now = task, lease, stopping, now
        self._redis, self._own = redis, _Trouble(f"Housekeeping ({task.name})")
        self._renew_seconds = lease_seconds / _TRIES_PER_LEASE
        self._renew_at = self._due_at = 0.0
        self._holds = False
        self.thread = threading.Thread(
            target=self._work, name=f"kumiko-housekeeping-{task.name}", daemon=True
        )

    def _work(self) -> None:
        pause = min(self._renew_seconds, self._task.interval)
        while not self._stopping.is_set():
            self._attend()
            self._stopping.wait(pause)
        if self._holds:
            with contextlib.suppress(Exception):  # it runs out by itself
                self._lease.release()

    def _attend(self) -> None:
        """Do the task if it is due and ours. Whatever happens, the thread goes on."""
        try:
            if self._keep_lease() and time.monotonic() >= self._due_at:
                self._run()
        except BrokerUnavailable as error:
            self._holds = False
            self._redis.is_there(error)
        except Exception as error:  # noqa: BLE001  (logged, with its traceback, where it is a fault)
            self._own.is_there(error)
        finally:
            # Between two passes the database has one connection less.
            with contextlib.suppress(Exception):
                connections.close_all()

    def _run(self) -> None:
        began = time.monotonic()
        # A pass that fails is tried again in the next round, but not a heavy one at once.
        self._due_at = began + min(self._task.interval, self._renew_seconds)
        try:
            self._task.run(self._now(), self._go_on)
            self._due_at = began + self._task.interval
            self._own.is_over()
        finally:
            ended = time.monotonic()
            self._due_at = max(self._due_at, ended + (ended - began) * self._task.rest)

    def _keep_lease(self) -> bool:
        self._holds = self._lease.keep()
        self._renew_at = time.monotonic() + self._renew_seconds
        self._redis.is_over()
        return self._holds

    def _go_on(self, seconds: float = 0.0) -> bool:
        if self._stopping.wait(seconds):
            return False
        return time.monotonic() < self._renew_at or self._keep_lease()


class _Trouble:
    """Something that is away or broken: said when it begins and when it is over, not each time."""

    def __init__(self, what: str) -> None:
        self._what = what  # stands at the beginning of each line
        self._lock = threading.Lock()
        self._told = ""

    def is_there(self, error: Exception) -> None:
        """Note it."""
        is_expected = isinstance(error, BrokerUnavailable) or is_away(error)
        kind = "away" if is_expected else repr(error)
        with self._lock:
            is_new, self._told = kind != self._told, kind
        if not is_new:
            return
        if is_expected:
            reason = str(error).strip().split("\n", 1)[0]
            logger.warning("%s waits: %s", self._what, reason)
        else:
            logger.error("%s met a fault; it will try again", self._what, exc_info=error)

    def is_over(self) -> None:
        """Note that it works."""
        with self._lock:
            told, self._told = self._told, ""
        if told:
            logger.info("%s goes on", self._what)
