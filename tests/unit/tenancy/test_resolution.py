"""The one rule that gives a job its tenant: full tables (P11, P67, P68, user-needs 24)."""

from __future__ import annotations

import contextlib
import uuid
from typing import Any

import pytest
from pytest_django import Settings

from kumiko_django import (
    SYSTEM,
    JobDefinition,
    KumikoError,
    ScopeError,
    TenantRequired,
    system_scope,
    tenant_scope,
)
from kumiko_django.tenancy.resolution import AMBIENT, tenant_for_dispatch, tenant_for_run
from kumiko_django.types import ambient

pytestmark = pytest.mark.once


def handler(payload: Any, ctx: Any) -> None: ...


RULES = {
    rule: JobDefinition(handler=handler, name=f"{rule}-job", app_label="shop", tenant=rule)
    for rule in ("required", "system")
}
SCOPES: dict[str, Any] = {
    "none": contextlib.nullcontext,
    "acme": lambda: tenant_scope("acme"),
    "system": lambda: system_scope("because"),
    # A run of the system's, in a worker.
    "system run": lambda: ambient.entered({ambient.scope: ambient.Scope(SYSTEM, "system", "job")}),
    "system in acme": lambda: _both(tenant_scope("acme"), system_scope("because")),
    "acme in system": lambda: _both(system_scope("because"), tenant_scope("acme")),
}
GIVEN: dict[str, Any] = {
    "ambient": AMBIENT, "none": None, "acme": "acme", "globex": "globex", "SYSTEM": SYSTEM,
}  # fmt: skip


def _both(*blocks: Any) -> contextlib.ExitStack:
    stack = contextlib.ExitStack()
    for block in blocks:
        stack.enter_context(block)
    return stack


def dispatched(rule: str, scope: str, given: Any) -> str | type[KumikoError]:
    """The tenant, or the kind of error."""
    with SCOPES[scope]():
        try:
            return tenant_for_dispatch(RULES[rule], given)
        except KumikoError as error:
            # The message names the job.
            return type(error) if f"shop:job:{rule}-job" in str(error) else str(error)


# With tenancy: (scope, what is given) -> what comes of it, for a job that needs a tenant.
REQUIRED: dict[tuple[str, str], Any] = {
    ("none", "ambient"): TenantRequired,
    ("none", "none"): TenantRequired,
    ("none", "acme"): "acme",
    ("none", "globex"): "globex",
    ("none", "SYSTEM"): SYSTEM,
    ("acme", "ambient"): "acme",
    ("acme", "none"): "acme",
    ("acme", "acme"): "acme",
    ("acme", "globex"): ScopeError,
    ("acme", "SYSTEM"): SYSTEM,
    # A scope of the system's names no tenant; one has to be given (P68).
    ("system", "ambient"): TenantRequired,
    ("system", "none"): TenantRequired,
    ("system", "acme"): "acme",
    ("system", "globex"): "globex",
    ("system", "SYSTEM"): SYSTEM,
}
REQUIRED |= {("system run", given): REQUIRED["system", given] for given in GIVEN}
REQUIRED |= {("system in acme", given): REQUIRED["system", given] for given in GIVEN}
REQUIRED |= {("acme in system", given): REQUIRED["acme", given] for given in GIVEN}


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("scope", SCOPES)
def test_a_job_that_needs_a_tenant(scope: str, given: str) -> None:
    """P68, user-needs 24: none is an error at dispatch, never SYSTEM in silence."""
    assert dispatched("required", scope, GIVEN[given]) == REQUIRED[scope, given]


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("scope", SCOPES)
def test_a_job_of_the_system(scope: str, given: str) -> None:
    """It runs for no tenant, wherever it is dispatched; naming one is a mistake."""
    expected = ScopeError if given in ("acme", "globex") else SYSTEM

    assert dispatched("system", scope, GIVEN[given]) == expected


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("scope", ["none", "system", "system run"])
def test_without_tenancy_everything_belongs_to_system(
    settings: Settings, rule: str, given: str, scope: str
) -> None:
    """No scope is needed; a tenant that is named all the same shows that a setting is missing."""
    settings.KUMIKO = {**settings.KUMIKO, "TENANTS": None}
    expected = ScopeError if given in ("acme", "globex") else SYSTEM

    assert dispatched(rule, scope, GIVEN[given]) == expected


@pytest.mark.parametrize("given", [5, uuid.UUID(int=5)])
def test_other_kinds_of_ids_are_compared_as_text(given: Any) -> None:
    with tenant_scope(str(given)):
        assert tenant_for_dispatch(RULES["required"], given) == str(given)
    with tenant_scope("6"), pytest.raises(ScopeError, match=f"for tenant '{given}' from inside"):
        tenant_for_dispatch(RULES["required"], given)
    assert tenant_for_dispatch(RULES["required"], uuid.UUID(SYSTEM)) == SYSTEM


@pytest.mark.parametrize("given", ["", " acme", True, 1.5, ["acme"], "x" * 129])
def test_an_unusable_id_is_refused_whatever_the_rule(settings: Settings, given: Any) -> None:
    """An empty one is no way to say "none": that is how tenants are lost."""
    for tenants in ("tests.app.tenants.active_tenants", None):
        settings.KUMIKO = {**settings.KUMIKO, "TENANTS": tenants}
        for definition in RULES.values():
            with pytest.raises(ScopeError, match=r"tenant id"):
                tenant_for_dispatch(definition, given)


def test_messages_name_the_way_out(settings: Settings) -> None:
    with pytest.raises(TenantRequired, match=r"tenant_scope\(\.\.\.\).*tenant_id=SYSTEM.*'system'"):
        tenant_for_dispatch(RULES["required"])
    with (
        tenant_scope("acme"),
        pytest.raises(ScopeError, match=r"'globex' from inside the scope of tenant 'acme'\. Leave"),
    ):
        tenant_for_dispatch(RULES["required"], "globex")
    with pytest.raises(ScopeError, match=r"job of the system.*'acme'\. Drop tenant_id="):
        tenant_for_dispatch(RULES["system"], "acme")
    settings.KUMIKO = {**settings.KUMIKO, "TENANTS": None}
    with pytest.raises(ScopeError, match=r"'acme' is given, but tenancy is off.*\[\"TENANTS\"\]"):
        tenant_for_dispatch(RULES["required"], "acme")


# ------------------------------------------------------------------------------- when it runs

# (tenancy, rule, what the envelope carries) -> the tenant of the run, or the refusal.
RUN: dict[tuple[str, str, str | None], Any] = {
    ("on", "required", None): TenantRequired,
    ("on", "required", "acme"): "acme",
    ("on", "required", SYSTEM): SYSTEM,
    ("on", "required", ""): ScopeError,
    ("on", "required", "acme\n"): ScopeError,
    ("on", "system", None): SYSTEM,
    ("on", "system", SYSTEM): SYSTEM,
    ("on", "system", "acme"): ScopeError,
    ("off", "required", None): SYSTEM,
    ("off", "required", SYSTEM): SYSTEM,
    ("off", "required", "acme"): ScopeError,
    ("off", "system", None): SYSTEM,
    ("off", "system", SYSTEM): SYSTEM,
    ("off", "system", "acme"): ScopeError,
}


@pytest.mark.parametrize(("tenancy", "rule", "carried"), RUN)
@pytest.mark.parametrize("scope", ["none", "globex"])
def test_the_tenant_of_a_run(
    settings: Settings, tenancy: str, rule: str, carried: str | None, scope: str
) -> None:
    """B076, P11, P67, P68: the envelope decides, and nothing that happens to be ambient in the
    worker."""
    inside = contextlib.nullcontext() if scope == "none" else tenant_scope(scope)
    with inside:
        if tenancy == "off":
            settings.KUMIKO = {**settings.KUMIKO, "TENANTS": None}
        expected = RUN[tenancy, rule, carried]
        if isinstance(expected, str):
            assert tenant_for_run(RULES[rule], carried) == expected
            return
        with pytest.raises(expected):
            tenant_for_run(RULES[rule], carried)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("tenancy", [True, False])
def test_what_a_dispatch_decides_is_what_runs(settings: Settings, rule: str, tenancy: bool) -> None:
    """P11: one rule at both ends. Whatever a dispatch accepts, the run accepts as the same."""
    if not tenancy:
        settings.KUMIKO = {**settings.KUMIKO, "TENANTS": None}
    scopes = SCOPES if tenancy else {"none": SCOPES["none"], "system": SCOPES["system"]}
    accepted = 0
    for scope in scopes:
        for given in GIVEN.values():
            tenant = dispatched(rule, scope, given)
            if isinstance(tenant, str):
                assert tenant_for_run(RULES[rule], tenant) == tenant
                accepted += 1

    assert accepted >= 6


def test_the_marker_shows_what_it_is() -> None:
    assert repr(AMBIENT) == "AMBIENT"
