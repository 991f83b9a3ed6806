"""Schedules of jobs that are no more."""

from __future__ import annotations

from tests.regressions.regression import Regression, Replacement

REGRESSION = Regression(
    was=(
        "a scheduler whose definition was removed, renamed, moved to the other lane or "
        "started otherwise stayed in Redis and went on queueing jobs."
    ),
    test=(
        "tests/integration/worker/test_schedulers.py::"
        "test_orphans_of_ours_are_removed_and_others_left_alone"
    ),
    fails_at="assert set(schedulers.ids()) == {",
    changes=(
        Replacement(
            "kumiko_django/worker/scheduler.py",
            old="if record.mark or record.id in self._legacy:",
            new="if record.id in self._legacy:",
        ),
    ),
)
