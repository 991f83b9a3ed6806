"""A job that writes with the rights of the system, whoever has caused it."""

from __future__ import annotations

from tests.regressions.regression import Regression, Replacement

REGRESSION = Regression(
    was=(
        "what a job wrote was written by the system, also where a user had caused it who may "
        "write no such thing; nothing could be set, and the caller stood nowhere."
    ),
    test=("tests/unit/run/test_handlers.py::test_a_job_may_have_to_act_as_who_has_caused_it"),
    fails_at="assert isinstance(settlement, Fail)",
    changes=(
        Replacement(
            "kumiko_django/handlers/in_run.py",
            old="""\
        if get_settings().jobs_write_as == "caller":
            if self.caller_id is not None:
""",
            new="""\
        if get_settings().jobs_write_as == "nobody":
            if self.caller_id is not None:
""",
        ),
    ),
)
