"""A job that acts as whomever it names."""

from __future__ import annotations

from tests.regressions.regression import Regression, Replacement

REGRESSION = Regression(
    was=(
        "any job could write and ask in the name of any user, and of the system in any tenant; "
        "nothing had to be declared for it, and nothing was on record."
    ),
    test="tests/unit/run/test_handlers.py::test_an_ordinary_job_acts_as_nobody_else",
    fails_at="assert isinstance(settlement, Fail)",
    changes=(
        Replacement(
            "kumiko_django/handlers/in_run.py",
            old="""\
        if reason is None:
            raise AccessDenied(
                f"{job} may not act as another user
""".rstrip(),
            new="""\
        if reason is None and not job:
            raise AccessDenied(
                f"{job} may not act as another user
""".rstrip(),
        ),
    ),
)
