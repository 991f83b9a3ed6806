"""Two tenants share one child."""

from __future__ import annotations

from tests.regressions.regression import Regression, Replacement

REGRESSION = Regression(
    was=(
        "the id of a fan-out's child was made of the tenant's id with its dots replaced: "
        "a.b and a-b had one child, and one of them none."
    ),
    test="tests/unit/run/test_per_tenant.py::test_tenants_whose_ids_look_alike_have_a_child_each",
    fails_at="assert len({job.id for job in jobs}) == 7",
    changes=(
        Replacement(
            "kumiko_django/broker/keys.py",
            old="""\
    if _PLAIN.fullmatch(tenant_id):
        return plain
""",
            new="""\
    return plain
""",
        ),
    ),
)
