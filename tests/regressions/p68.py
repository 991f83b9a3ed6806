"""No tenant means the system."""

from __future__ import annotations

from tests.regressions.regression import Regression, Replacement

REGRESSION = Regression(
    was=(
        "a job without a tenant ran as the system's, which sees the data of all tenants, "
        "instead of being refused."
    ),
    test="tests/unit/tenancy/test_resolution.py::test_a_job_that_needs_a_tenant[none-ambient]",
    fails_at='assert dispatched("required", scope, GIVEN[given]) == REQUIRED[scope, given]',
    changes=(
        Replacement(
            "kumiko_django/tenancy/resolution.py",
            old="""\
    if definition.per_tenant:
        return SYSTEM  # whose job it is to make one for every tenant
""",
            new="""\
    return SYSTEM
""",
        ),
        Replacement(
            "kumiko_django/tenancy/resolution.py",
            old="""\
    if carried is None:
        raise TenantRequired(
""",
            new="""\
    if carried is None:
        return SYSTEM
        raise TenantRequired(
""",
        ),
    ),
)
