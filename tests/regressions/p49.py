"""Cron patterns read in UTC."""

from __future__ import annotations

from tests.regressions.regression import Regression, Replacement

REGRESSION = Regression(
    was=(
        "no time zone was given with a pattern, so that the package read its times in "
        "UTC: an hour or two off, and another one after a clock change."
    ),
    test="tests/unit/definitions/test_cron.py::test_daily_times_around_a_clock_change",
    fails_at='assert walls(occurrences(Cron("30 2 * * *", tz=zone), begin, end)) == half_past_two',
    changes=(
        Replacement(
            "kumiko_django/definitions/triggers.py",
            old="ZoneInfo(self.zone_name)",
            new='ZoneInfo("UTC")',
        ),
    ),
)
