"""The recorder: one thread per process that writes what runs tell it, many events in one commit.

Runs hand over events and go on. A start is written with the next commit, at the latest 100 ms after
it, unless the run has ended by then: then its whole row is one insert. The end of a run has been
stored beside its queue already when it comes here, so it may wait for company.

While the database is away the events stay here, up to a limit at which the worker takes no more
jobs (:meth:`Recorder.has_room`), and are written when it is back; nothing fails for it (P26).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from uuid import UUID

from django.db import connections, router

from kumiko_django.history.batch import Batch, Ended
from kumiko_django.history.events import LogLine, RunEnded, RunStarted
from kumiko_django.history.health import is_away
from kumiko_django.history.models import JobRun
from kumiko_django.history.record import decode
from kumiko_django.history.writer import Result, write
from kumiko_django.types.jsonable import JSON

logger = logging.getLogger("kumiko_django.history")

START_DELAY = 0.1
"""Seconds that a start may wait for company or for its end."""
END_DELAY = 0.05
"""Seconds that an end may wait for company, unless somebody waits for it."""
LOG_DELAY = 0.5
"""Seconds that log lines and progress may wait."""
MOST_ENDS = 1000
"""Ended runs that may wait for the database."""
MOST_CHARACTERS = 32 * 1024 * 1024
"""Length of their records in all."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


class Recorder:
    """Takes events from any thread; writes them from its own."""

    def __init__(self, announce: Callable[[Callable[[], None]], None] | None = None) -> None:
        """Create a recorder; nothing is written before :meth:`open`.

        Args:
            announce: Calls what it is given where futures shall be set, once for a whole commit; by
                default right away, in the recorder's thread.
        """
        self._announce = announce or (lambda call: call())
        self._unwritten = 0
        self._characters = 0
        self._batch = Batch()
        self._being_written = Batch()
        self._changed = threading.Condition()
        self._due: float | None = None
        self._closing = False
        self._give_up_at: float | None = None
        self._database_is_away = False
        self._lost_some = False
        self._thread = threading.Thread(target=self._work, name="kumiko-recorder", daemon=True)

    def open(self) -> None:
        """Start the writing thread."""
        self._thread.start()

    def run_started(self, event: RunStarted) -> None:
        """Note the start of a run; it is on record within :data:`START_DELAY` if the run lives."""
        with self._changed:
            self._batch.add_start(event)
            self._schedule(START_DELAY)

    def log_lines(self, run_id: UUID, lines: Iterable[LogLine]) -> None:
        """Note lines of a run's log."""
        with self._changed:
            self._batch.logs.setdefault(run_id, []).extend(lines)
            self._schedule(LOG_DELAY)

    def unwritten_lines(self, run_id: UUID) -> list[LogLine]:
        """The lines of a run's log that are not on record yet."""
        with self._changed:
            return [
                *self._being_written.logs.get(run_id, ()),
                *self._batch.logs.get(run_id, ()),
            ]

    def has_room(self) -> bool:
        """Whether there is room for the record of another run."""
        return self._unwritten < MOST_ENDS and self._characters < MOST_CHARACTERS

    def run_progress(self, run_id: UUID, progress: JSON) -> None:
        """Note how far a run has come; only the latest counts."""
        with self._changed:
            self._batch.progress[run_id] = progress
            self._schedule(LOG_DELAY)

    def run_ended(self, event: RunEnded, record: str = "", *, awaited: bool = True) -> Future[bool]:
        """Note the end of a run.

        Args:
            event: The end.
            record: The whole record as a text, from which also its start can be written.
            awaited: Whether somebody waits for it; else it waits for company.

        Returns:
            A future that is done when the record is safe: True if this end stands in it, False if
            the run had been closed by another (it was taken for lost).
        """
        future: Future[bool] = Future()
        with self._changed:
            if self._closing and not self._thread.is_alive():
                future.set_exception(RuntimeError("the recorder has been closed"))
                return future
            former = self._batch.ends.get(event.run_id)
            if former is not None:  # found by the job's next run before it was told of
                future = former.future
                self._unwritten -= 1
                self._characters -= len(former.record)
            self._batch.progress.pop(event.run_id, None)
            self._batch.add_end(Ended(event, future, record))
            self._unwritten += 1
            self._characters += len(record)
            self._schedule(0 if awaited else END_DELAY)
        return future

    def flush(self) -> Future[None]:
        """Write what has been noted so far now; a future that is done when it is out of the way."""
        future: Future[None] = Future()
        with self._changed:
            self._batch.flushes.append(future)
            self._schedule(0)
        return future

    def run_found(self, record: str) -> None:
        """Note the record of a run that another worker may not have lived to write.

        Raises:
            UnreadableRecord: It is no record of a run.
        """
        start, event, lines = decode(record)
        with self._changed:
            if event.run_id in self._batch.ends or event.run_id in self._being_written.ends:
                return  # ours, and on its way
            if not event.is_turn:
                self._batch.starts[event.run_id] = start
            self._batch.logs.setdefault(event.run_id, []).extend(lines)
        self.run_ended(event, record)

    def hurry(self, timeout: float) -> None:
        """Give up after so many seconds from now if the database is away: the process ends."""
        with self._changed:
            if self._give_up_at is None:
                self._give_up_at = time.monotonic() + timeout
                self._changed.notify()

    def close(self, timeout: float) -> bool:
        """Write what is left and end the thread.

        Args:
            timeout: Seconds to keep trying while the database is away.

        Returns:
            Whether everything has been written.
        """
        with self._changed:
            self._closing = True
            self._changed.notify()
        self.hurry(timeout)
        self._thread.join(self._until_giving_up(timeout) + 1.0)
        if not self._thread.is_alive():
            return not self._lost_some
        # It hangs in the database's driver. Whoever waits must not hang with it.
        with self._changed:
            for batch in (self._being_written, self._batch):
                batch.refuse(TimeoutError("the database did not answer in time"))
        return False

    def _schedule(self, delay: float) -> None:
        due = time.monotonic() + delay
        if self._due is None or due < self._due:
            self._due = due
            self._changed.notify()

    def _work(self) -> None:
        while (batch := self._next_batch()) is not None:
            try:
                self._write_until_safe(batch)
            except Exception as error:
                # A fault of ours, or of the host's router. Without this thread every run would
                # wait for its record for ever; an outcome stands without one.
                count = len(batch.all_ended())
                logger.exception("The history of %d runs could not be written", count)
                self._refuse(batch, error)
        connections.close_all()

    def _next_batch(self) -> Batch | None:
        """Wait until something is due, and take all there is; None when closed and empty."""
        with self._changed:
            while True:
                if self._closing:
                    break
                if self._due is not None and self._due <= time.monotonic():
                    break
                self._changed.wait(None if self._due is None else self._due - time.monotonic())
            if self._closing and not self._batch:
                return None
            batch, self._batch, self._due = self._batch, Batch(), None
            self._being_written = batch
            return batch

    def _write_until_safe(self, batch: Batch) -> None:
        pause = _FIRST_PAUSE
        while True:
            alias = router.db_for_write(JobRun)
            try:
                ended = write(alias, batch)
            except Exception as error:
                with suppress(Exception):
                    connections[alias].close()
                if not is_away(error):
                    raise
                self._tell_away(error)
                if self._gave_up():
                    self._refuse(batch, error)
                    return
                with self._changed:
                    self._changed.wait(self._until_giving_up(pause))
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                self._tell_back()
                self._forget(batch)
                if batch.all_ended():
                    self._announce(partial(_settle, batch, ended))
                return

    def _refuse(self, batch: Batch, error: Exception) -> None:
        self._lost_some = True
        self._forget(batch)
        self._announce(partial(batch.refuse, error))

    def _forget(self, batch: Batch) -> None:
        ended = batch.all_ended()
        with self._changed:
            self._unwritten -= len(ended)
            self._characters -= sum(len(each.record) for each in ended)
            self._being_written = Batch()
        for flush in batch.flushes:
            flush.set_result(None)

    def _gave_up(self) -> bool:
        return self._until_giving_up(1.0) <= 0

    def _until_giving_up(self, seconds: float) -> float:
        """``seconds``, or what is left until the recorder gives up, if that is less."""
        if self._give_up_at is None:
            return seconds
        return max(min(seconds, self._give_up_at - time.monotonic()), 0)

    def _tell_away(self, error: Exception) -> None:
        if not self._database_is_away:
            self._database_is_away = True
            logger.warning(
                "The history cannot be written now (%s); runs wait with their records",
                str(error).strip().split("\n", 1)[0],
            )

    def _tell_back(self) -> None:
        if self._database_is_away:
            self._database_is_away = False
            logger.info("The history is written again")


def _settle(batch: Batch, results: Mapping[UUID, Result]) -> None:
    for run_id in batch.ends:
        batch.settle(run_id, results[run_id])
    batch.settle_turns()
