"""Writes uses of escape hatches, from a thread of its own that begins with the first one.

Whoever uses a hatch goes on at once and never fails because of the record. A use counts as reported
when it is stored, not before (P107): while the database is away uses are kept and counted, up to a
limit. What cannot be kept or written is told in the log, each with all that is known of it.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final
from uuid import UUID

from django.db import DataError, IntegrityError, connections

from kumiko_django.audit import writer
from kumiko_django.audit.windows import Key, Snapshot, Window, key_of
from kumiko_django.observability import names
from kumiko_django.observability.chosen import get_meter
from kumiko_django.types.hatches import HatchUse, described, hatch_port

logger = logging.getLogger("kumiko_django.audit")

FIRST_DELAY: Final = 0.5
"""Seconds until a use is written; that of a run is when the run ends, if that is sooner."""
COUNT_DELAY: Final = 5.0
"""Seconds until the count of a record that is there already is brought up to date."""
MOST_WINDOWS: Final = 10_000
"""Windows that are kept, and windows that may wait for the database."""
EXIT_SECONDS: Final = 2.0
"""How long the end of a process waits for the record."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


class HatchRecorder:
    """Takes uses from any thread, counts those that are alike, and writes them."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """Create one; its thread begins with the first use.

        Args:
            now: A clock that only runs forward, in seconds.
        """
        self._now = now
        self._changed = threading.Condition()
        self._windows: dict[Key, Window] = {}
        self._of_run: dict[UUID, list[Key]] = {}
        self._waiting: dict[UUID, Window] = {}
        """Windows of which not all is on record."""
        self._due: float | None = None
        self._thread: threading.Thread | None = None
        self._is_away = False

    def note(self, use: HatchUse) -> None:
        """Take a use. Does not wait for the database, but in a test (see the writer)."""
        if writer.in_test_case():
            writer.write_here(use, self._now())
            return
        with self._changed:
            key = key_of(use)
            window = self._windows.get(key)
            if window is None or window.is_over(self._now()):
                if len(self._waiting) >= MOST_WINDOWS:
                    logger.error("Not recorded, the database is away: %s", described(use))
                    return
                window = self._open(key, use)
            window.add(use)
            self._waiting[window.id] = window
            self._schedule(COUNT_DELAY if window.stored else FIRST_DELAY)

    def run_ended(self, run_id: UUID) -> None:
        """End the windows of a run, and write what is left of them at once. Does not wait."""
        if run_id not in self._of_run:  # nearly every run
            return
        with self._changed:
            for key in self._of_run.pop(run_id, ()):
                self._windows.pop(key, None)
            if self._waiting:
                self._schedule(0)

    def flush(self, timeout: float) -> bool:
        """Write what has been used so far; True if that is done within so many seconds."""
        with self._changed:
            asked = set(self._waiting)
            if asked:
                self._schedule(0)
            return self._changed.wait_for(lambda: not (asked & self._waiting.keys()), timeout)

    def close(self, timeout: float) -> None:
        """Write what is left, as far as that can be done in so many seconds; tell the rest."""
        if self.flush(timeout):
            return
        with self._changed:
            left = [window.snapshot() for window in self._waiting.values()]
            self._waiting.clear()
        for snapshot in left:
            writer.tell_lost(snapshot, "the process ends")

    def _open(self, key: Key, use: HatchUse) -> Window:
        if len(self._windows) >= MOST_WINDOWS:
            self._make_room()
        window = self._windows[key] = Window(use, self._now())
        if use.run_id is not None and key[0] == use.run_id:
            self._of_run.setdefault(use.run_id, []).append(key)
        return window

    def _make_room(self) -> None:
        """Forget windows that are over, else the older half; what waits is written all the same."""
        now = self._now()
        keys = [key for key, window in self._windows.items() if window.is_over(now)]
        for key in keys or list(self._windows)[: MOST_WINDOWS // 2]:
            del self._windows[key]
        left = self._windows.keys()
        self._of_run = {
            run_id: kept
            for run_id, keys in self._of_run.items()
            if (kept := [key for key in keys if key in left])
        }

    def _schedule(self, delay: float) -> None:
        due = time.monotonic() + delay
        if self._due is None or due < self._due:
            self._due = due
            self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="kumiko-audit", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            batch = self._next_batch()
            try:
                writer.write(batch)
                self._stored(batch)
                pause = _FIRST_PAUSE
            except (DataError, IntegrityError):
                self._write_each(batch)
            except Exception as error:  # noqa: BLE001  (told; whatever it is, it may pass)
                self._tell_away(error)
                self._again_in(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            finally:
                # Uses are rare; a connection of its own for each process would be too much.
                with suppress(Exception):
                    connections.close_all()

    def _next_batch(self) -> list[Snapshot]:
        with self._changed:
            while self._due is None or self._due > time.monotonic():
                self._changed.wait(None if self._due is None else self._due - time.monotonic())
            self._due = None
            return [window.snapshot() for window in self._waiting.values()]

    def _again_in(self, pause: float) -> None:
        time.sleep(pause)
        with self._changed:
            self._schedule(0)

    def _write_each(self, batch: Sequence[Snapshot]) -> None:
        """Write one by one, where one of them is refused: the others must not wait for it."""
        for snapshot in batch:
            try:
                writer.write([snapshot])
            except (DataError, IntegrityError) as error:
                writer.tell_lost(snapshot, str(error).strip())
                self._forget(snapshot.window)
            except Exception:  # noqa: BLE001
                self._again_in(_FIRST_PAUSE)  # away by now
                return
            else:
                self._stored([snapshot])

    def _stored(self, batch: Sequence[Snapshot]) -> None:
        """Mark what is on record, and send the signal for what was not there before (P107)."""
        if self._is_away:
            self._is_away = False
            logger.info("Uses of escape hatches are recorded again")
        new = [snapshot for snapshot in batch if not snapshot.window.stored]
        with self._changed:
            for snapshot in batch:
                snapshot.window.stored = snapshot.count
        for snapshot in new:
            writer.announce(snapshot)
        with self._changed:
            for snapshot in batch:
                window = snapshot.window
                if window.count == snapshot.count:
                    self._waiting.pop(window.id, None)
                else:
                    self._schedule(COUNT_DELAY)
            self._changed.notify_all()

    def _forget(self, window: Window) -> None:
        """Drop what no database takes, so that the next use reports again."""
        with self._changed:
            self._waiting.pop(window.id, None)
            self._windows.pop(key_of(window.use), None)
            self._changed.notify_all()

    def _tell_away(self, error: Exception) -> None:
        if not self._is_away:
            self._is_away = True
            logger.warning(
                "Uses of escape hatches cannot be recorded now (%s); they are kept and tried again",
                str(error).strip().split("\n", 1)[0],
            )


class _Current:
    """The recorder of this process; a fork gets one of its own."""

    def __init__(self) -> None:
        self.recorder = HatchRecorder()

    def renew(self) -> None:
        """Begin anew: the thread and the locks are the parent's, and so is what waits."""
        self.recorder = HatchRecorder()


current: Final = _Current()


def plug_in() -> None:
    """Have all uses recorded from now on."""
    hatch_port.sink = _take
    hatch_port.run_ended = lambda run_id: current.recorder.run_ended(run_id)


def _take(use: HatchUse) -> None:
    current.recorder.note(use)
    meter = get_meter()
    if meter is not None:
        outcome = "refused" if use.refused else "used"
        meter.count(names.HATCHES.name, kind=use.kind, outcome=outcome)


def flush(timeout: float) -> bool:
    """Write what has been used so far in this process; True if that is done in so many seconds."""
    return current.recorder.flush(timeout)


def close(timeout: float = EXIT_SECONDS) -> None:
    """The same at the end of a process; what cannot be written is told in the log."""
    current.recorder.close(timeout)


atexit.register(close)
if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork either
    os.register_at_fork(after_in_child=current.renew)
