"""One tenant's work makes way for another's."""

from __future__ import annotations

from tests.regressions.regression import Regression, Replacement

REGRESSION = Regression(
    was=(
        "skip, replace and debounce knew the name of a job only, so that a dispatch of "
        "one tenant removed or kept out the work of all others."
    ),
    test="tests/integration/admission/test_modes.py::TestReplace::test_other_tenants_work_stays",
    fails_at="assert queue.wait == [made[1].job_id, made[2].job_id]",
    changes=(
        Replacement(
            "kumiko_django/admission/rules.py",
            old=' if definition.concurrency_scope == "global" else own',
            new="",
        ),
    ),
)
