"""Which hours have to be computed anew, and when: one pass of the roll-up."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator
from typing import Final

from django.db import router
from django.db.models import Sum

from kumiko_django.history import stats
from kumiko_django.history.models import JobRun, JobStat

SECONDS_FOR_EACH: Final = 0.5
"""No other hour of a kind begins in a pass when its kind has had so long; the next pass goes on."""
_RECENT_HOURS: Final = 24
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class RollUp:
    """Keeps ``JobStat`` up to date, pass by pass.

    What it remembers between two passes only saves work: another process may begin at any time.
    """

    def __init__(self) -> None:
        self._looked_through_until = _EPOCH
        self._recent = 0

    def run(self, now: dt.datetime, go_on: Callable[[], bool]) -> int:
        """Look at all hours that may need it.

        Args:
            now: What time it is.
            go_on: Asked before each hour.

        Returns:
            How many hours have been computed.
        """
        alias = router.db_for_write(JobRun)
        computed = 0
        for hours in (
            self._open(now),
            self._with_runs_that_ended(alias, now),
            self._never_settled(alias, now),
            self._recently_closed(now),
        ):
            began = time.monotonic()
            for hour in hours:
                if not go_on():
                    return computed
                computed += stats.settle(alias, hour, now)
                if time.monotonic() - began > SECONDS_FOR_EACH:
                    break
        return computed

    def _open(self, now: dt.datetime) -> Iterator[dt.datetime]:
        yield stats.hour_at(now)
        yield stats.open_from(now)

    def _with_runs_that_ended(self, alias: str, now: dt.datetime) -> Iterator[dt.datetime]:
        """Closed hours of which other runs are unfinished than stands on record."""
        recorded = (
            JobStat.objects.using(alias)
            .filter(status__in=stats.UNFINISHED, hour__lt=stats.open_from(now))
            .values_list("hour")
            .annotate(unfinished=Sum("count"))
            .order_by("hour")
        )
        for hour, unfinished in list(recorded):
            if stats.unfinished_runs(alias, hour) != unfinished:
                yield hour

    def _never_settled(self, alias: str, now: dt.datetime) -> Iterator[dt.datetime]:
        """Hours that closed while no worker was alive to look at them, oldest first.

        Hours without runs are jumped over.
        """
        end = stats.open_from(now)
        while (hour := stats.next_hour(alias, self._looked_through_until, end)) is not None:
            if not stats.is_final(alias, hour):
                yield hour
            self._looked_through_until = hour + stats.HOUR
        self._looked_through_until = max(self._looked_through_until, end)

    def _recently_closed(self, now: dt.datetime) -> Iterator[dt.datetime]:
        """One hour of the last day, another in each pass.

        Records may be late by hours: written when the database or Redis is back.
        """
        self._recent = self._recent % _RECENT_HOURS + 1
        yield stats.open_from(now) - self._recent * stats.HOUR
