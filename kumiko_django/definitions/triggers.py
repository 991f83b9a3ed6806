"""What starts a job. Exactly one trigger belongs to each definition (B002)."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from zoneinfo import ZoneInfo

from django.utils import timezone

from kumiko_django.definitions import crontab
from kumiko_django.definitions.on import On
from kumiko_django.definitions.options import MAX_PAUSE_SECONDS, Duration
from kumiko_django.exceptions import DefinitionError

__all__ = ["Cron", "Every", "Manual", "On", "Trigger"]

SHORTEST_INTERVAL_SECONDS: Final = 0.1
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND: Final = dt.timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Manual:
    """Nothing starts the job by itself: only a dispatch does."""


@dataclass(frozen=True, slots=True)
class Cron:
    """The times of a cron pattern, by the clock of a time zone.

    Attributes:
        pattern: Five fields, or six with seconds first; ``@daily`` and its like are translated.
        tz: Name of the zone; None for Django's ``TIME_ZONE``.

    Raises:
        DefinitionError: The pattern or the zone is wrong, or the pattern never comes true.
    """

    pattern: str
    tz: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "pattern", crontab.check_pattern(self.pattern))
        object.__setattr__(self, "tz", crontab.check_zone(self.tz))

    @property
    def zone_name(self) -> str:
        """The zone that holds: the given one, else Django's."""
        return self.tz or timezone.get_default_timezone_name()

    def next_after(self, moment: dt.datetime) -> dt.datetime:
        """The first occurrence after an aware time, in the trigger's zone.

        What happens when clocks change is told in :mod:`kumiko_django.definitions.crontab`.

        Raises:
            ValueError: The time is naive.
        """
        _refuse_naive(moment)
        return crontab.next_occurrence(self.pattern, ZoneInfo(self.zone_name), moment)


@dataclass(frozen=True, slots=True)
class Every:
    """Always after the same time, counted from 1970 in UTC: all processes agree on the moments.

    Attributes:
        seconds: The interval: seconds or a timedelta, whole milliseconds, from 0.1 s to a year.

    Raises:
        DefinitionError: The interval is none of these.
    """

    seconds: Duration

    def __post_init__(self) -> None:
        object.__setattr__(self, "seconds", _interval(self.seconds))

    @property
    def milliseconds(self) -> int:
        """The interval in BullMQ's unit."""
        seconds: float = _as_seconds(self.seconds)
        return round(seconds * 1000)

    def next_after(self, moment: dt.datetime) -> dt.datetime:
        """The first occurrence after an aware time, in UTC.

        Raises:
            ValueError: The time is naive.
        """
        _refuse_naive(moment)
        passed = (moment - _EPOCH) // _MILLISECOND
        return _EPOCH + (passed // self.milliseconds + 1) * self.milliseconds * _MILLISECOND


Scheduled: TypeAlias = Cron | Every
Trigger: TypeAlias = Manual | Scheduled | On


def _refuse_naive(moment: Any) -> None:
    if not isinstance(moment, dt.datetime) or timezone.is_naive(moment):
        raise ValueError(f"next_after() takes an aware datetime, not {moment!r}.")


def _as_seconds(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, dt.timedelta) else value


def _interval(value: object) -> float:
    seconds = _as_seconds(value)
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not SHORTEST_INTERVAL_SECONDS <= seconds <= MAX_PAUSE_SECONDS:
        raise DefinitionError(
            f"Every takes seconds or a timedelta, from {SHORTEST_INTERVAL_SECONDS:g} s to a year, "
            f"not {value!r}."
        )
    if not math.isclose(seconds * 1000, round(seconds * 1000), abs_tol=1e-6):
        raise DefinitionError(f"Every counts whole milliseconds; {value!r} has fractions of one.")
    return float(seconds)
