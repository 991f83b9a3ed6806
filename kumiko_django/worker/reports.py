"""What a worker tells the meter by itself: how full its queues are (B208, B209, P85, P86).

Every worker process tells of its lanes, at once when it starts and then every 15 seconds. All of
them tell the same of one lane, so what is shown is the maximum over the processes, not the sum. One
process that told for all would leave its last figures behind when another took over.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Final

from django.db import connections

from kumiko_django.broker.depth import depths
from kumiko_django.definitions.options import Lane
from kumiko_django.definitions.registry import registry
from kumiko_django.history.successes import last_successes
from kumiko_django.observability import names
from kumiko_django.observability.chosen import get_meter
from kumiko_django.observability.guarded import GuardedMeter

logger = logging.getLogger("kumiko_django.worker")

INTERVAL: Final = 15.0
STOP_SECONDS: Final = 1.0


class Reports:
    """Tells the meter about some lanes, in a thread. Used once; without a meter it does nothing."""

    def __init__(self, lanes: Sequence[Lane], interval: float = INTERVAL) -> None:
        """Create it; nothing is looked at yet.

        Raises:
            SettingsError: ``METER`` cannot be had.
        """
        self._lanes = tuple(lanes)
        self._interval = interval
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        meter = get_meter()
        if meter is not None:
            self._thread = threading.Thread(
                target=self._work, args=(meter,), name="kumiko-reports", daemon=True
            )

    def open(self) -> None:
        """Start."""
        if self._thread is not None:
            self._thread.start()

    def request_stop(self) -> None:
        """Begin nothing new."""
        self._stopping.set()

    def close(self) -> None:
        """Stop; takes a second at most."""
        self.request_stop()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def _work(self, meter: GuardedMeter) -> None:
        knows_successes = False
        while not self._stopping.is_set():
            with _quiet(meter):
                self._tell_depths(meter)
            if not knows_successes:
                with _quiet(meter):
                    self._tell_successes(meter)
                    knows_successes = True
            self._stopping.wait(self._interval)

    def _tell_depths(self, meter: GuardedMeter) -> None:
        for lane, depth in depths(self._lanes).items():
            for state, count in depth.states.items():
                meter.gauge(names.QUEUE_DEPTH.name, count, lane=lane, state=state)
            meter.gauge(names.OLDEST_AGE.name, depth.oldest_seconds, lane=lane)

    def _tell_successes(self, meter: GuardedMeter) -> None:
        try:
            tell_successes(meter, self._lanes)
        finally:
            connections.close_all()


def tell_successes(meter: GuardedMeter, lanes: Sequence[Lane]) -> None:
    """Tell when each job of some lanes was last completed, as far as the history knows (P84)."""
    jobs = [one.qualified_name for one in registry.all() if one.lane in lanes]
    known = last_successes(jobs)
    for name in jobs:
        ended_at = known.get(name)
        meter.succeeded(name, 0.0 if ended_at is None else ended_at.timestamp())


@contextlib.contextmanager
def _quiet(meter: GuardedMeter) -> Iterator[None]:
    """Count what goes wrong, and try again next time: whoever needs Redis says so (P86)."""
    try:
        yield
    except Exception:
        meter.count(names.POLL_ERRORS.name)
        logger.debug("The queues or the history cannot be looked at now", exc_info=True)
