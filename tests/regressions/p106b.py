"""What one run has set on a connection's session stays there for the next (``SET app.tenant``)."""

from __future__ import annotations

from tests.regressions.regression import Regression, Replacement

REGRESSION = Regression(
    was=(
        "threads keep their database connections, and with them the tenant that the run before "
        "had set for row-level security; it was set once for a connection."
    ),
    test=(
        "tests/integration/policies/test_session.py::"
        "test_two_tenants_times_a_hundred_runs_on_one_connection"
    ),
    fails_at="assert codes() == set()",
    changes=(
        Replacement(
            "kumiko_django/tenancy/session.py",
            old="""\
            elif known.session != value:
""",
            new="""\
            elif known.session in (None, NONE):
""",
        ),
    ),
)
