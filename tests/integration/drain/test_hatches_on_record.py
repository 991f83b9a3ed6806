"""Escape hatches of jobs that go through the queue: on record with their runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kumiko_django import JobContext, JobDefinition, dispatch, registry
from kumiko_django.audit.models import EscapeHatchUse
from kumiko_django.audit.recorder import HatchRecorder
from kumiko_django.handlers.registry import handlers
from kumiko_django.history.models import JobRun
from kumiko_django.testing import drain
from tests.app.models import Label
from tests.unit.handlers.kit import Seen, defines, user

pytestmark = pytest.mark.django_db(transaction=True)

GRANTS = {
    "cross_tenant_reads": "counts all",
    "system_identity": "writes for users",
}


@pytest.fixture
def job(queue_prefix: str) -> Iterator[JobDefinition]:
    """A job that reads across tenants and acts as those whom it is told."""

    def handler(payload: Any, ctx: JobContext) -> int:
        for key in payload["users"]:
            ctx.write_as(key, "testapp:write:noted")
        return ctx.cross_tenant_reads(Label).count()

    with registry.isolated(), handlers.isolated():
        defines("write", Seen(), name="noted", roles=["staff"])
        yield registry.register(
            JobDefinition(
                handler=handler, app_label="testapp", name="hatched", escape_hatches=GRANTS
            )
        )


def test_the_uses_of_a_run_stand_beside_it(hatches: HatchRecorder, job: JobDefinition) -> None:
    """B140, B151, B152, B164: all kinds in one window of the run; written when it has ended."""
    people = [user("staff", name=name) for name in ("mia", "ben")]
    payload = {"users": [each.pk for each in people]}
    for tenant in ("acme", "globex"):
        dispatch(job, payload, tenant_id=tenant, triggered_by=people[0])
    drain()

    runs = {run.tenant_id: run.pk for run in JobRun.objects.all()}
    uses = EscapeHatchUse.objects.order_by("tenant_id", "kind")
    columns = ("tenant_id", "run_id", "kind", "count", "caller_id", "refused")
    assert list(uses.values_list(*columns)) == [
        (tenant, runs[tenant], kind, count, str(people[0].pk), False)
        for tenant in ("acme", "globex")
        for kind, count in (("cross_tenant_reads", 1), ("system_identity", 2))
    ]
    detail = uses.filter(kind="system_identity")[0].detail
    assert all(f"as user {each.pk}" in detail for each in people)
