"""A timeout that nobody watches."""

from __future__ import annotations

from tests.regressions.regression import Regression, Replacement

REGRESSION = Regression(
    was=(
        "the timeout was handed to the queue as an option of the job, and the queue has "
        "no such option: a handler could run for ever."
    ),
    test=(
        "tests/unit/run/test_timeouts.py::"
        "test_a_handler_that_ends_by_itself_after_its_time_has_overrun"
    ),
    fails_at="assert isinstance(ending, Overran)",
    changes=(
        Replacement(
            "kumiko_django/run/execution.py",
            old="            definition.timeout_seconds,",
            new="            None,",
        ),
    ),
)
