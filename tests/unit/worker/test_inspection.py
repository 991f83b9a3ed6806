"""What ``runjobs --check`` says of the tenants, and of where numbers and spans go."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from kumiko_django import JobDefinition, observability, registry
from kumiko_django.worker.config import HostConfig
from kumiko_django.worker.exit_codes import ExitCode
from kumiko_django.worker.inspection import check_jobs, check_observability, check_tenants


def _broken() -> list[str]:
    raise LookupError("no such table")


def _tell(settings: Settings, tenants: object) -> None:
    settings.KUMIKO = {**settings.KUMIKO, "TENANTS": tenants}


@pytest.mark.once
def test_active_tenants_are_counted(settings: Settings) -> None:
    _tell(settings, lambda: ["acme", "globex"])
    findings = check_tenants()
    assert findings.facts == ["Tenants: 2 active"]
    assert (findings.errors, findings.warnings, findings.code) == ([], [], ExitCode.OK)


@pytest.mark.once
def test_no_tenant_at_all_is_probably_a_mistake(settings: Settings) -> None:
    _tell(settings, list)
    assert check_tenants().warnings == ['KUMIKO["TENANTS"] gives no tenant.']


@pytest.mark.once
def test_a_callable_that_raises_is_an_error_with_its_reason(settings: Settings) -> None:
    _tell(settings, _broken)
    findings = check_tenants()
    assert findings.errors == ['KUMIKO["TENANTS"] cannot be asked: LookupError: no such table']
    assert findings.code is ExitCode.CONFIGURATION


@pytest.mark.once
def test_without_tenancy_that_is_said(settings: Settings) -> None:
    settings.KUMIKO = {k: v for k, v in settings.KUMIKO.items() if k != "TENANTS"}
    assert check_tenants().facts == ["Tenants: none, everything belongs to SYSTEM"]


@pytest.mark.once
def test_a_meter_and_a_tracer_are_made(settings: Settings) -> None:
    assert check_observability().facts == []
    paths = [f"{observability.__name__}.{name}" for name in ("InMemoryMeter", "InMemoryTracer")]
    settings.KUMIKO = {**settings.KUMIKO, "METER": paths[0], "TRACER": paths[1]}
    findings = check_observability()
    assert findings.facts == ['KUMIKO["METER"]: made', 'KUMIKO["TRACER"]: made']
    assert findings.errors == []


@pytest.mark.once
@pytest.mark.django_db
def test_without_them_no_worker_starts(settings: Settings) -> None:
    """Numbers that nobody gets are noticed weeks later; so the start says it."""
    settings.KUMIKO = {**settings.KUMIKO, "METER": _broken}
    findings = check_observability()
    assert findings.code is ExitCode.CONFIGURATION
    assert "LookupError: no such table" in findings.errors[0]
    for more in ({}, {"check_only": True}):
        with pytest.raises(CommandError, match=r"METER.*no such table") as caught:
            call_command("runjobs", **more)
        assert caught.value.returncode == ExitCode.CONFIGURATION


@pytest.mark.once
def test_one_job_is_not_jobs() -> None:
    config = HostConfig(lanes=("worker",), concurrency=1, grace_seconds=1, drain=False)
    with registry.isolated():
        registry._by_name.clear()
        assert check_jobs(config).facts == ["Lane worker: 0 jobs defined"]
        registry.register(
            JobDefinition(handler=lambda payload, ctx: None, name="one", app_label="testapp")
        )
        assert check_jobs(config).facts == ["Lane worker: 1 job defined"]
