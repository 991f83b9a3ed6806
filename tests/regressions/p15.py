"""The right to run runs out while its owner runs."""

from __future__ import annotations

from tests.regressions.regression import Regression, Replacement

REGRESSION = Regression(
    was=(
        "the lock of a sequential job lasted for a set time and was never renewed; a "
        "handler that took longer had the next one run beside it."
    ),
    test=(
        "tests/integration/admission/test_slots.py::"
        "TestSweeper::test_a_holder_that_waits_or_runs_keeps_its_slot"
    ),
    fails_at="assert kept.parked(KEY) == [b]",
    changes=(
        Replacement(
            "kumiko_django/broker/scripts/sweep.lua",
            old="if not lock or lock == owner then return false end",
            new="if not lock then return false end",
        ),
    ),
)
