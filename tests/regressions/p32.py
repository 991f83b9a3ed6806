"""A result that is no JSON makes a failure of a success."""

from __future__ import annotations

from tests.regressions.regression import Regression, Replacement

REGRESSION = Regression(
    was=(
        "what a handler returned went to the queue as it was; a value that JSON does not "
        "have could not be written there, so the job was failed, or handed out again."
    ),
    test=(
        "tests/integration/worker/test_odd_ends.py::"
        "test_a_result_that_json_does_not_have_fails_nothing"
    ),
    fails_at="run = ended_run(job_id, timeout=10)",
    changes=(
        Replacement(
            "kumiko_django/run/result.py",
            old="""\
    if value is None:
        return None, ""
""",
            new="""\
    return value, ""
""",
        ),
    ),
)
