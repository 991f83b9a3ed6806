"""When a schedule comes true: zones, clock changes, patterns (B002, P49, user-needs 29)."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pytest_django import Settings

from kumiko_django import Cron, DefinitionError, Every

pytestmark = pytest.mark.once

BERLIN, NEW_YORK, SYDNEY, LORD_HOWE = (
    "Europe/Berlin", "America/New_York", "Australia/Sydney", "Australia/Lord_Howe",
)  # fmt: skip


def at(zone: str, wall: str) -> dt.datetime:
    """A wall-clock time; of two equal ones the first."""
    return dt.datetime.fromisoformat(wall).replace(tzinfo=ZoneInfo(zone))


def occurrences(cron: Cron | Every, after: dt.datetime, before: dt.datetime) -> list[dt.datetime]:
    """All between two times, each found from the one before it, as in a queue."""
    found: list[dt.datetime] = []
    moment = cron.next_after(after)
    while moment.astimezone(dt.UTC) < before.astimezone(dt.UTC):
        found.append(moment)
        moment = cron.next_after(moment)
    return found


def walls(moments: list[dt.datetime]) -> list[str]:
    """``dd hh:mm±offset`` by the clock of their zone."""
    return [f"{moment:%d %H:%M}{moment:%z}"[:-2] for moment in moments]


# The night and the two days around each change; half past two and nine o'clock on three days.
# Lord Howe moves its clock by half an hour only: 2:00 becomes 2:30, and 2:00 becomes 1:30.
DAILY: dict[tuple[str, str, str], tuple[list[str], list[str]]] = {
    (BERLIN, "spring", "2026-03-28"): (
        ["28 02:30+01", "29 03:00+02", "30 02:30+02"],
        ["28 09:00+01", "29 09:00+02", "30 09:00+02"],
    ),
    (BERLIN, "autumn", "2026-10-24"): (
        ["24 02:30+02", "25 02:30+02", "26 02:30+01"],
        ["24 09:00+02", "25 09:00+01", "26 09:00+01"],
    ),
    (NEW_YORK, "spring", "2026-03-07"): (
        ["07 02:30-05", "08 03:00-04", "09 02:30-04"],
        ["07 09:00-05", "08 09:00-04", "09 09:00-04"],
    ),
    (NEW_YORK, "autumn", "2026-10-31"): (
        ["31 02:30-04", "01 02:30-05", "02 02:30-05"],
        ["31 09:00-04", "01 09:00-05", "02 09:00-05"],
    ),
    (SYDNEY, "spring", "2026-10-03"): (
        ["03 02:30+10", "04 03:00+11", "05 02:30+11"],
        ["03 09:00+10", "04 09:00+11", "05 09:00+11"],
    ),
    (SYDNEY, "autumn", "2026-04-04"): (
        ["04 02:30+11", "05 02:30+11", "06 02:30+10"],
        ["04 09:00+11", "05 09:00+10", "06 09:00+10"],
    ),
    (LORD_HOWE, "spring", "2026-10-03"): (
        ["03 02:30+10", "04 02:30+11", "05 02:30+11"],
        ["03 09:00+10", "04 09:00+11", "05 09:00+11"],
    ),
    (LORD_HOWE, "autumn", "2026-04-04"): (
        ["04 02:30+11", "05 02:30+10", "06 02:30+10"],
        ["04 09:00+11", "05 09:00+10", "06 09:00+10"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", list(DAILY), ids=lambda case: f"{case[0]} {case[1]}")
def test_daily_times_around_a_clock_change(case: tuple[str, str, str]) -> None:
    """P49, user-needs 29, bullmq-python 1.7: the package runs 9:00 at 8:00 or 10:00."""
    zone, _, first_day = case
    half_past_two, nine = DAILY[case]
    begin = at(zone, first_day)
    end = begin + dt.timedelta(days=3)

    assert walls(occurrences(Cron("30 2 * * *", tz=zone), begin, end)) == half_past_two
    assert walls(occurrences(Cron("0 9 * * *", tz=zone), begin, end)) == nine
    # A seconds field changes nothing about it.
    assert walls(occurrences(Cron("0 30 2 * * *", tz=zone), begin, end)) == half_past_two


@pytest.mark.parametrize("case", list(DAILY), ids=lambda case: f"{case[0]} {case[1]}")
@pytest.mark.parametrize(("pattern", "minutes"), [("0 * * * *", 60), ("*/15 * * * *", 15)])
def test_what_repeats_all_day_follows_real_time(
    case: tuple[str, str, str], pattern: str, minutes: int
) -> None:
    """P49, user-needs 29: no hole, none left out, whatever the clock shows.

    The expected times come from asking each minute of the three days whether its clock fits.
    """
    zone, _, first_day = case
    begin = at(zone, first_day).astimezone(dt.UTC)
    every_minute = [begin + dt.timedelta(minutes=n) for n in range(1, 3 * 24 * 60)]
    local = [moment.astimezone(ZoneInfo(zone)) for moment in every_minute]
    expected = [moment for moment in local if moment.minute % minutes == 0]

    found = occurrences(Cron(pattern, tz=zone), begin, begin + dt.timedelta(days=3))

    assert found == expected
    if zone != LORD_HOWE:
        gaps = {later - earlier for earlier, later in pairwise(m.astimezone(dt.UTC) for m in found)}
        assert gaps == {dt.timedelta(minutes=minutes)}


def test_both_equal_hours_have_their_run_and_the_skipped_one_none() -> None:
    """P49, bullmq-python 1.7: the package skips the second 02:00."""
    hourly = Cron("0 * * * *", tz=BERLIN)
    autumn = occurrences(hourly, at(BERLIN, "2026-10-25T01:30"), at(BERLIN, "2026-10-25T04:30"))
    spring = occurrences(hourly, at(BERLIN, "2026-03-29T00:30"), at(BERLIN, "2026-03-29T04:30"))

    assert walls(autumn) == ["25 02:00+02", "25 02:00+01", "25 03:00+01", "25 04:00+01"]
    assert walls(spring) == ["29 01:00+01", "29 03:00+02", "29 04:00+02"]


def test_within_the_second_of_two_equal_hours_nothing_is_found_twice() -> None:
    """P49: asked at 2:10 for the second time, the 2:30 of that night has passed."""
    second = at(BERLIN, "2026-10-25T02:10").replace(fold=1)

    found = Cron("30 2 * * *", tz=BERLIN).next_after(second)

    assert walls([found]) == ["26 02:30+01"]


def test_skipped_times_of_one_night_are_one_run() -> None:
    """P49: 2:00, 2:20 and 2:40 do not exist, and 3:00 comes once."""
    cron = Cron("0,20,40 2,3 * * *", tz=BERLIN)
    found = occurrences(cron, at(BERLIN, "2026-03-29"), at(BERLIN, "2026-03-30"))

    assert walls(found) == ["29 03:00+02", "29 03:20+02", "29 03:40+02"]


@pytest.mark.parametrize(
    ("zone", "day", "daily", "all_day"),
    [
        ("Africa/Cairo", "2026-04-24", "24 01:00+03", ["24 01:00+03", "24 02:00+03"]),
        ("America/Havana", "2026-03-08", "08 01:00-04", ["08 01:00-04", "08 02:00-04"]),
    ],
)
def test_a_midnight_that_the_clock_skips(
    zone: str, day: str, daily: str, all_day: list[str]
) -> None:
    """P49: where the day begins at 1:00, what is due at midnight runs then."""
    eve = at(zone, day).astimezone(dt.UTC) - dt.timedelta(minutes=10)
    later = eve + dt.timedelta(hours=1, minutes=30)

    assert walls([Cron("@daily", tz=zone).next_after(eve)]) == [daily]
    assert walls(occurrences(Cron("0 * * * *", tz=zone), eve, later)) == all_day


def test_the_default_zone_is_djangos(settings: Settings) -> None:
    """P49: the original passes none, and Node and Python then disagree."""
    cron = Cron("0 9 * * *")
    begin = dt.datetime(2026, 1, 14, 20, tzinfo=dt.UTC)

    settings.TIME_ZONE = "Asia/Tokyo"
    tokyo = cron.next_after(begin)
    settings.TIME_ZONE = "America/Lima"
    lima = cron.next_after(begin)

    assert (tokyo.isoformat(), lima.isoformat()) == (
        "2026-01-15T09:00:00+09:00",
        "2026-01-15T09:00:00-05:00",
    )
    assert Cron("@daily", tz="UTC").zone_name == "UTC"


@pytest.mark.parametrize(
    ("pattern", "after", "expected"),
    [
        ("*/20 * * * * *", "2026-05-01T10:00:20", "2026-05-01T10:00:40"),
        ("15 30 9 * * *", "2026-05-01T10:00", "2026-05-02T09:30:15"),
        ("0 6 * * mon-fri", "2026-05-01T10:00", "2026-05-04T06:00"),
        ("0 6 * * 7", "2026-05-01T10:00", "2026-05-03T06:00"),
        ("0 6 L * *", "2026-05-01T10:00", "2026-05-31T06:00"),
        ("0 6 * * 1#2", "2026-05-01T10:00", "2026-05-11T06:00"),
        ("0 6 * feb,dec *", "2026-05-01T10:00", "2026-12-01T06:00"),
        ("0 0 29 2 *", "2026-05-01T10:00", "2028-02-29T00:00"),
        ("* 6 29 2 *", "2026-05-01T10:00", "2028-02-29T06:00"),
        ("0 0 13 * 5", "2026-05-01T10:00", "2026-05-08T00:00"),
        ("0 0 1-7 * 1", "2026-05-01T10:00", "2026-05-02T00:00"),
        ("0 0 */7 * 1", "2026-05-01T10:00", "2026-06-01T00:00"),
        ("0 6 * * *", "2026-05-01T06:00", "2026-05-02T06:00"),
        ("0 6 * * *", "2026-05-01T05:59:59.999999", "2026-05-01T06:00"),
    ],
)
def test_fields_and_names(pattern: str, after: str, expected: str) -> None:
    """P49: six fields have the seconds first; two day fields are or-ed unless one has a star."""
    cron = Cron(pattern, tz=BERLIN)
    assert cron.next_after(at(BERLIN, after)) == at(BERLIN, expected)


@pytest.mark.parametrize(
    ("nickname", "pattern"),
    [
        ("@hourly", "0 * * * *"),
        ("@Daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        (" @annually ", "0 0 1 1 *"),
        ("  5   4 * *  * ", "5 4 * * *"),
    ],
)
def test_nicknames_are_translated(nickname: str, pattern: str) -> None:
    """P49: what stands in Redis is a pattern that every client reads."""
    assert Cron(nickname) == Cron(pattern)
    assert Cron(nickname).pattern == pattern


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("* * * *", "has 4 fields; write five .* or six with seconds first"),
        ("", "has 0 fields"),
        ("61 * * * *", "bad minute. Allowed are second 0-59, minute 0-59"),
        ("0 24 * * *", "bad hour. Allowed"),
        ("0 0 0 * *", "bad day-of-month. Allowed"),
        ("0 0 * * mo", "bad day-of-week. Allowed"),
        ("0 0 * * 5-1", "bad day-of-week. .* ranges upwards"),
        ("0 */0 * * *", "bad hour"),
        ("H * * * *", "bad minute"),
        ("0 0 ? * *", r"bad day-of-month. Write '\*' instead of '\?'"),
        ("0 0 31 2 *", "never comes true: .* Correct its day of month or its month"),
        ("0 0 31 4,6 *", "never comes true"),
        ("0 0 30 feb *", "never comes true"),
        ("@dayly", "Did you mean '@daily'"),
        ("@reboot", "Known are @yearly"),
        ("0 0 * * " + "1," * 200 + "1", "at most 200 characters"),
        (b"0 0 * * *", "takes a pattern as text"),
        (None, "takes a pattern as text"),
    ],
)
def test_a_wrong_pattern_is_refused_with_the_fix(pattern: Any, message: str) -> None:
    """P10, P49: when it is defined, not when the worker starts."""
    with pytest.raises(DefinitionError, match=message):
        Cron(pattern)


@pytest.mark.parametrize(
    ("zone", "message"),
    [
        ("Europe/Berln", "Did you mean 'Europe/Berlin'"),
        ("europe/berlin ", "Did you mean 'Europe/Berlin'"),
        ("CEST", "is no time zone. Give an IANA name, e.g. 'Europe/Berlin'"),
        ("", "Give an IANA name"),
        ("Europe", "is no time zone"),
        ("../etc/passwd", "is no time zone"),
        ("/etc/localtime", "is no time zone"),
        (ZoneInfo(BERLIN), "must be the name of a time zone, e.g. 'Europe/Berlin'"),
        (2, "must be the name"),
    ],
)
def test_a_wrong_zone_is_refused_with_the_fix(zone: Any, message: str) -> None:
    """P10, P49: when it is defined."""
    with pytest.raises(DefinitionError, match=message):
        Cron("@daily", tz=zone)


def test_intervals_are_counted_from_one_beginning() -> None:
    """P49: every process gives the same moments, so an interval has no owner."""
    every = Every(dt.timedelta(minutes=5))
    moment = dt.datetime(2026, 5, 1, 10, 2, 3, tzinfo=ZoneInfo(BERLIN))

    assert every == Every(300)
    assert every.next_after(moment) == dt.datetime(2026, 5, 1, 8, 5, tzinfo=dt.UTC)
    assert every.next_after(every.next_after(moment)).minute == 10
    assert Every(0.25).milliseconds == 250


@pytest.mark.parametrize(
    ("interval", "message"),
    [
        (0, "from 0.1 s to a year"),
        (0.05, "from 0.1 s to a year"),
        (-5, "from 0.1 s to a year"),
        (dt.timedelta(days=366), "from 0.1 s to a year"),
        (float("nan"), "from 0.1 s to a year"),
        (True, "from 0.1 s to a year"),
        ("60", "takes seconds or a timedelta"),
        (None, "takes seconds or a timedelta"),
        (1.0005, "whole milliseconds"),
    ],
)
def test_a_wrong_interval_is_refused_with_the_fix(interval: Any, message: str) -> None:
    """P10: when it is defined."""
    with pytest.raises(DefinitionError, match=message):
        Every(interval)


@pytest.mark.parametrize("moment", [dt.datetime(2026, 1, 1), None, "2026-01-01"])  # noqa: DTZ001
def test_a_time_without_a_zone_is_refused(moment: Any) -> None:
    """design 3: `.next_after(aware_datetime)`."""
    with pytest.raises(ValueError, match="takes an aware datetime"):
        Cron("@daily").next_after(moment)
    with pytest.raises(ValueError, match="takes an aware datetime"):
        Every(60).next_after(moment)
