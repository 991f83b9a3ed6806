"""``ctx.system_db``, and what is on record of scopes that a tenant's code enters."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from django.apps import apps
from django.db import OperationalError
from django.db.models import Model
from pytest_django import Settings

from kumiko_django import AccessDenied, JobContext, system_scope, tenant_scope
from kumiko_django.audit.models import EscapeHatchUse
from kumiko_django.audit.recorder import HatchRecorder
from kumiko_django.broker.delivery import Complete
from kumiko_django.types import ambient
from tests.app.models import Label, Task, Topic
from tests.unit.run.deliveries import NAME, RunOne, delivery
from tests.unit.run.test_hatches import ALL, JOB, OWN, READS, WRITES, codes, rows, uses
from tests.unit.tenancy.rows import ACME, GLOBEX, Rows

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["rows"]


@pytest.fixture
def system_scoped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' app works for the system itself."""
    config = apps.get_app_config("testapp")
    monkeypatch.setattr(config, "kumiko_system_scope", True, raising=False)


# --------------------------------------------------------------------------------------- system_db


@pytest.mark.usefixtures("system_scoped")
def test_system_db_of_a_system_scoped_app(
    run_one: RunOne, hatches: HatchRecorder, rows: Rows
) -> None:
    """B016, B148, B239: after a check or a reason it reads all; the reason names the job."""

    def handler(payload: Any, ctx: JobContext) -> None:
        system = ctx.system_db
        assert codes(system.assert_tenant_match(ACME)(Task)) == ALL
        assert codes(system.assert_rows_tenant([rows.own, rows.shared])(Task)) == ALL
        assert codes(system.assert_rows_tenant(Task.objects.values("tenant_id"))(Task)) == ALL
        assert codes(system.acknowledge_cross_tenant("bills all")(Task)) == ALL
        assert codes(Task.objects.all()) == OWN

    assert run_one(handler, JOB) == Complete(None)
    assert hatches.flush(20)
    generated = f"{NAME} is a job of the system-scoped app 'testapp'"
    assert uses() == [
        ("cross_tenant_reads", generated, False, 3), ("cross_tenant_reads", "bills all", False, 1),
    ]  # fmt: skip


@pytest.mark.usefixtures("system_scoped")
def test_system_db_refuses_what_is_another_tenants(
    run_one: RunOne, hatches: HatchRecorder, rows: Rows
) -> None:
    """B148: a wrong tenant, rows of another or of nobody known, and a missing reason."""

    def handler(payload: Any, ctx: JobContext) -> None:
        system = ctx.system_db
        with pytest.raises(AccessDenied, match=rf"{NAME}.*assert_tenant_match\('globex'\)"):
            system.assert_tenant_match(GLOBEX)
        with pytest.raises(AccessDenied, match=f"Task {rows.foreign.pk}"):
            system.assert_rows_tenant([rows.own, rows.foreign])
        for unclear in ({"id": 1}, Topic.objects.get(), 7):
            with pytest.raises(AccessDenied):
                system.assert_rows_tenant([unclear])
        with pytest.raises(ValueError, match="needs a reason"):
            system.acknowledge_cross_tenant(" ")

    assert run_one(handler, JOB) == Complete(None)
    assert hatches.flush(20)
    assert uses() == [("cross_tenant_reads", "another tenant's", True, 5)]


@pytest.mark.usefixtures("system_scoped")
def test_the_reason_of_a_grant_wins(run_one: RunOne, hatches: HatchRecorder, rows: Rows) -> None:
    """B239."""

    def handler(payload: Any, ctx: JobContext) -> None:
        ctx.system_db.assert_tenant_match(ACME)(Task)

    run_one(handler, JOB, **READS)
    assert hatches.flush(20)
    assert uses() == [("cross_tenant_reads", "usage of all customers", False, 1)]


# ---------------------------------------------------------------------------------------- scopes


def test_leaving_the_runs_scope_is_on_record(run_one: RunOne, hatches: HatchRecorder) -> None:
    """Design 7: every exception is on record; so is a tenant's code that works for another."""

    def handler(payload: Any, ctx: JobContext) -> None:
        with system_scope("looks up rates"), tenant_scope(GLOBEX), tenant_scope(GLOBEX):
            pass
        with tenant_scope(GLOBEX):
            pass

    assert run_one(handler, JOB) == Complete(None)
    assert hatches.flush(20)
    assert uses() == [
        ("scope_switch", "looks up rates", False, 1), ("scope_switch", "tenant_scope()", False, 1),
    ]  # fmt: skip
    first = EscapeHatchUse.objects.order_by("id")[0]
    assert (first.job_name, first.tenant_id, first.caller_id) == (NAME, ACME, "7")
    assert first.detail == "into the scope of SYSTEM"
    assert first.run_id is not None


def test_entering_a_scope_from_outside_is_not(hatches: HatchRecorder) -> None:
    """Design 7: a command that works for one tenant after the other leaves none."""
    with system_scope("all customers"), tenant_scope(ACME):
        pass
    with tenant_scope(ACME), tenant_scope(ACME):
        pass

    assert hatches.flush(20)
    assert not uses()


def test_a_request_that_leaves_its_tenants_scope_is_on_record(hatches: HatchRecorder) -> None:
    """Design 7: with the user, who acts and has caused it; on the event loop as well."""

    async def view() -> None:
        async with tenant_scope(ACME), system_scope("shows the price list"):
            pass

    with ambient.entered({ambient.user_id: "9"}):
        asyncio.run(view())
    assert hatches.flush(20)
    use = EscapeHatchUse.objects.get()
    assert (use.kind, use.reason) == ("scope_switch", "shows the price list")
    assert (use.tenant_id, use.actor_id, use.caller_id) == (ACME, "9", "9")
    assert (use.job_name, use.run_id) == ("", None)


def test_without_tenancy_the_hatches_work_for_the_system(
    run_one: RunOne, settings: Settings, hatches: HatchRecorder
) -> None:
    """B145: a project without tenants has the same context."""
    settings.KUMIKO = {k: v for k, v in settings.KUMIKO.items() if k != "TENANTS"}
    Label.objects.create(name="one")

    def handler(payload: Any, ctx: JobContext) -> int:
        with ctx.db.global_writes():
            Label.objects.create(name="two")
        return ctx.db(Label).count()

    assert run_one(handler, delivery(job_name=NAME, data={}), **WRITES) == Complete(2)


class Broken:
    """A router that has no database for the record."""

    def db_for_write(self, model: type[Model], **hints: Any) -> None:
        if model is EscapeHatchUse:
            raise OperationalError("no such table")


def test_a_record_that_cannot_be_written_changes_no_outcome(
    run_one: RunOne, hatches: HatchRecorder, settings: Settings
) -> None:
    """P24, P107: the run completes as it would, and its use waits until it can be written."""
    settings.DATABASE_ROUTERS = [Broken()]

    def handler(payload: Any, ctx: JobContext) -> int:
        return ctx.cross_tenant_reads(Label).count()

    assert run_one(handler, JOB, **READS) == Complete(0)
    assert not hatches.flush(0.2)
    settings.DATABASE_ROUTERS = []
    assert hatches.flush(20)
    assert uses() == [("cross_tenant_reads", "usage of all customers", False, 1)]
