"""What makes a facet sees every tenant."""

from __future__ import annotations

from tests.regressions.regression import Regression, Replacement

REGRESSION = Regression(
    was=(
        "config and derivatives of every job were made with a database in system mode; a factory "
        "that kept it, or asked without a condition, gave a tenant what is another's."
    ),
    test=(
        "tests/unit/facets/test_provided.py::"
        "test_a_factory_runs_in_the_tenants_scope_wherever_the_handler_is"
    ),
    fails_at='assert seen == ["acme", "acme"]',
    changes=(
        Replacement(
            "kumiko_django/facets/provided.py",
            old="""\
            with ambient.entered({ambient.scope: run_scope(self.tenant_id)}):
                request = FacetRequest(self.tenant_id, *self._facts, self.get)
""",
            new="""\
            system = ambient.Scope("00000000-0000-4000-8000-000000000000", "system", "facets")
            with ambient.entered({ambient.scope: system}):
                request = FacetRequest(self.tenant_id, *self._facts, self.get)
""",
        ),
    ),
)
