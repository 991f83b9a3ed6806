"""The tenant of a run stays in its thread, as in a careless version for Django."""

from __future__ import annotations

from tests.regressions.regression import Regression, Replacement

REGRESSION = Regression(
    was=(
        "the scope was set in the thread that runs the handler and not put back; threads "
        "are used again, and the next work there was done for the tenant of the one "
        "before."
    ),
    test=(
        "tests/unit/run/test_threads.py::"
        "test_the_scope_of_a_run_is_gone_when_its_thread_is_used_again"
    ),
    fails_at="assert following is None",
    changes=(
        Replacement(
            "kumiko_django/run/threads.py",
            old="""\
        call = partial((context or contextvars.copy_context()).run, function)
""",
            new="""\
        values = dict(context or contextvars.copy_context())

        def call() -> Any:
            for variable, value in values.items():
                variable.set(value)
            return function()

""",
        ),
    ),
)
