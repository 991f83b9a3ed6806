"""A fan-out that breaks off leaves tenants out for good."""

from __future__ import annotations

from tests.regressions.regression import Regression, Replacement

REGRESSION = Regression(
    was=(
        "children were added one by one by a job that had the retries of its definition, "
        "none by default: what broke off in the middle was never gone on with."
    ),
    test=(
        "tests/integration/worker/test_fan_out.py::"
        "test_a_fan_out_is_tried_again_though_its_job_is_not"
    ),
    fails_at="runs = ended_runs(wrapper, 2, timeout=10)",
    changes=(
        Replacement(
            "kumiko_django/definitions/fan_out.py",
            old="retries=max(definition.retries or 0, WRAPPER_RETRIES)",
            new="retries=definition.retries",
        ),
    ),
)
