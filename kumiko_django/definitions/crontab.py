"""Cron patterns in time zones, clock changes included (P49, user-needs 29).

The pattern is parsed by cronsim. The times are those of Debian's ``cron(8)``:

* A pattern that names its times of day (neither minute nor hour begins with ``*``) runs once a day
  for each of them. A time that the clock skips in spring runs right after the change; of one that
  comes twice in autumn only the first counts.
* Any other pattern follows real time: what the clock skips does not run, what comes twice runs
  twice. So every hour and every 15 minutes stay that far apart.

A seconds field changes nothing about that. cronsim's own walk through zones is not used: it applies
the rule to five fields only, and loses occurrences where clocks change by half an hour.
"""

from __future__ import annotations

import datetime as dt
import difflib
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError
from cronsim.cronsim import Field

from kumiko_django.exceptions import DefinitionError

NICKNAMES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
MAX_PATTERN_LENGTH: Final = 200
_MAX_YEARS: Final = 50
_MINUTE: Final = dt.timedelta(minutes=1)
_SECOND: Final = dt.timedelta(seconds=1)
_SOME_DAY: Final = dt.datetime(2000, 1, 1)  # noqa: DTZ001  (a wall clock, in no zone)


def check_pattern(pattern: object) -> str:
    """A pattern as it is stored: nicknames translated, one space between the fields.

    Raises:
        DefinitionError: It is none, or never comes true; the message says what to write.
    """
    if not isinstance(pattern, str):
        raise DefinitionError(
            f"Cron takes a pattern as text, e.g. Cron('0 6 * * *'), not {pattern!r}."
        )
    text = " ".join(pattern.split())
    if text.startswith("@"):
        return _translated(text)
    if len(text) > MAX_PATTERN_LENGTH:
        raise DefinitionError(
            f"Cron pattern {text[:40]!r}...: at most {MAX_PATTERN_LENGTH} characters are allowed."
        )
    if len(text.split()) not in (5, 6):
        raise DefinitionError(
            f"Cron pattern {pattern!r} has {len(text.split())} fields; write five (minute, hour, "
            "day of month, month, day of week), or six with seconds first."
        )
    try:
        next(CronSim(text, _SOME_DAY))
    except CronSimError as error:
        raise DefinitionError(_refusal(text, str(error))) from None
    except StopIteration:
        raise DefinitionError(_never(text)) from None
    return text


def check_zone(name: object) -> str | None:
    """The name of a time zone, or None for Django's.

    Raises:
        DefinitionError: There is no such zone; the message names the nearest.
    """
    if name is None:
        return None
    if isinstance(name, str):
        try:
            return ZoneInfo(name).key
        except (KeyError, ValueError, OSError):  # unknown, no name at all, the name of a folder
            pass
        raise DefinitionError(f"Cron: tz={name!r} is no time zone. {_zone_hint(name)}")
    raise DefinitionError(
        f"Cron: tz must be the name of a time zone, e.g. 'Europe/Berlin', not {name!r}."
    )


def _zone_hint(name: str) -> str:
    zones = available_timezones()
    for zone in zones:
        if zone.lower() == name.strip().lower():
            return f"Did you mean {zone!r}?"
    near = difflib.get_close_matches(name, zones, n=1, cutoff=0.5)
    # The abbreviation that looks most like another is another zone.
    if near and not (name.isupper() and len(name) <= 5):
        return f"Did you mean {near[0]!r}?"
    return "Give an IANA name, e.g. 'Europe/Berlin'."


def next_occurrence(pattern: str, zone: dt.tzinfo, moment: dt.datetime) -> dt.datetime:
    """The first occurrence after ``moment``, in ``zone``.

    Args:
        pattern: One that :func:`check_pattern` gave.
        zone: Where its times are read.
        moment: An aware time.

    Raises:
        ValueError: There is none within 50 years.
    """
    instant = moment.astimezone(dt.UTC)
    if names_its_times(pattern):
        return _by_the_clock(pattern, zone, instant)
    return _in_real_time(pattern, zone, instant)


def names_its_times(pattern: str) -> bool:
    """Whether a pattern runs at given times of day, so that clock changes are made up for."""
    minute, hour = pattern.split()[-5:-3]
    return not minute.startswith("*") and not hour.startswith("*")


def _by_the_clock(pattern: str, zone: dt.tzinfo, instant: dt.datetime) -> dt.datetime:
    clock = instant.astimezone(zone).replace(tzinfo=None)
    for time in CronSim(pattern, clock):
        found = _after_a_gap(time.replace(tzinfo=zone))
        # In the second of two equal hours the clock shows times whose first one has passed.
        if found.astimezone(dt.UTC) > instant:
            return found
    raise ValueError(f"{pattern!r} does not come true within {_MAX_YEARS} years")


def _after_a_gap(local: dt.datetime) -> dt.datetime:
    """The time itself, or the moment of the change where the clock skips it."""
    # Of a time that is skipped, fold says by which of the two offsets it is read.
    high = local.replace(fold=0).astimezone(dt.UTC)
    real = high.astimezone(local.tzinfo)
    if real.replace(tzinfo=None) == local.replace(tzinfo=None):
        return local
    low = local.replace(fold=1).astimezone(dt.UTC)
    while high - low > _SECOND:
        middle = low + (high - low) // _SECOND // 2 * _SECOND
        is_changed = middle.astimezone(local.tzinfo).utcoffset() == real.utcoffset()
        low, high = (low, middle) if is_changed else (middle, high)
    return high.astimezone(local.tzinfo)


def _in_real_time(pattern: str, zone: dt.tzinfo, instant: dt.datetime) -> dt.datetime:
    fields = _parsed(pattern)
    now = instant.replace(microsecond=0) + _SECOND
    end = instant + dt.timedelta(days=366 * _MAX_YEARS)
    while now < end:
        local = now.astimezone(zone)
        if local.month not in fields.months or not fields.match_day(local.date()):
            now = _next_midnight(local)
        elif local.hour not in fields.hours:
            now = _next_hour(now, local)
        elif local.minute not in fields.minutes:
            now = now.replace(second=0) + _MINUTE
        elif local.second not in fields.seconds:
            now += _SECOND
        else:
            return local
    raise ValueError(f"{pattern!r} does not come true within {_MAX_YEARS} years")


def _next_midnight(local: dt.datetime) -> dt.datetime:
    # Where the clock skips midnight, this is the moment at which it does so.
    day = local.date() + dt.timedelta(days=1)
    return dt.datetime.combine(day, dt.time(), local.tzinfo).astimezone(dt.UTC)


def _next_hour(now: dt.datetime, local: dt.datetime) -> dt.datetime:
    begin = now.replace(second=0)
    later = begin + dt.timedelta(minutes=60 - local.minute)
    # Not across a clock change: some are by half an hour.
    unchanged = later.astimezone(local.tzinfo).utcoffset() == local.utcoffset()
    return later if unchanged else begin + _MINUTE


@lru_cache(maxsize=256)
def _parsed(pattern: str) -> CronSim:
    """For its fields only."""
    return CronSim(pattern, _SOME_DAY)


def _translated(text: str) -> str:
    if text.lower() in NICKNAMES:
        return NICKNAMES[text.lower()]
    near = difflib.get_close_matches(text.lower(), NICKNAMES, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Known are {', '.join(NICKNAMES)}."
    raise DefinitionError(f"Cron pattern {text!r} is unknown. {hint}")


def _never(text: str) -> str:
    return (
        f"Cron pattern {text!r} never comes true: no date in {_MAX_YEARS} years fits it. Correct "
        "its day of month or its month."
    )


def _refusal(text: str, error: str) -> str:
    day, _, weekday = text.split()[-3:]
    try:
        CronSim(f"0 0 {day} * {weekday}", _SOME_DAY)
    except CronSimError:
        pass
    else:
        if error == Field.DAY.msg():  # right in itself, but not in these months
            return _never(text)
    hint = (
        "Allowed are second 0-59, minute 0-59, hour 0-23, day of month 1-31 or L, month 1-12 or "
        "JAN-DEC, day of week 0-7 or SUN-SAT (5L: the last Friday, 1#2: the second Monday), with "
        "'*', lists, ranges upwards and steps."
    )
    if "?" in text:
        hint = "Write '*' instead of '?'."
    return f"Cron pattern {text!r}: {error[:1].lower()}{error[1:]}. {hint}"
