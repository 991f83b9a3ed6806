"""Every list of what tenants see is answered from an index (user-needs 49)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from kumiko_django import tenant_scope
from kumiko_django.history.visible_models import TenantVisibleFailure, TenantVisibleRun
from kumiko_django.types.ids import uuid7
from kumiko_django.types.visible import subject_of
from tests.unit.history.admin_rows import id_at
from tests.unit.history.test_admin_indexes import assert_indexed

pytestmark = pytest.mark.django_db

ROWS = 6_000
MODELS: dict[str, Any] = {"run": TenantVisibleRun, "failure": TenantVisibleFailure}


@pytest.fixture(scope="module", autouse=True)
def _rows(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Most failures are resolved, most runs completed; half of the subjects have never failed."""
    now = timezone.now()
    with django_db_blocker.unblock():
        TenantVisibleRun.objects.bulk_create((_run(n, now) for n in range(ROWS)), batch_size=1_000)
        TenantVisibleFailure.states.bulk_create(
            (_failure(n, now) for n in range(ROWS)), batch_size=1_000
        )
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
        yield
        TenantVisibleRun.objects.all().delete()
        TenantVisibleFailure.states.all().delete()


def _common(number: int) -> dict[str, Any]:
    subject = subject_of({"id": number}, ("id",))
    return {
        "id": uuid7(), "tenant_id": f"tenant-{number % 200}",
        "job_name": f"testapp:job:number-{number % 20}", "subject": subject.values,
        "subject_key": subject.key,
    }  # fmt: skip


def _run(number: int, now: dt.datetime) -> TenantVisibleRun:
    began = now - dt.timedelta(seconds=60 * (ROWS - number))
    status = "failed" if number % 50 == 0 else "completed"
    return TenantVisibleRun(
        **_common(number), run_id=id_at(began), status=status, started_at=began, finished_at=began
    )


def _failure(number: int, now: dt.datetime) -> TenantVisibleFailure:
    began = now - dt.timedelta(seconds=60 * (ROWS - number))
    row = TenantVisibleFailure(**_common(number), success_run_id=id_at(began))
    if number % 2:
        row.run_id, row.started_at, row.failed_at = id_at(began), began, began
        row.message_key = "app.failed"
        row.resolved_at = None if number % 51 == 0 else began
    return row


QUESTIONS: dict[str, dict[str, str]] = {
    "all": {},
    "a tenant": {"tenant": "tenant-13"},
    "a tenant that has none": {"tenant": "nobody"},
    "a job": {"job": "testapp:job:number-7"},
    "a job of a tenant": {"tenant": "tenant-13", "job": "testapp:job:number-13"},
    "a subject": {"subject": "id=777"},
    "a subject that nobody has": {"subject": "id=x"},
}
OF_FAILURES: dict[str, dict[str, str]] = {
    "what is open": {"resolved": "no"},
    "what is resolved": {"resolved": "yes"},
    "what is open of a tenant": {"resolved": "no", "tenant": "tenant-1"},
    "what is open of another": {"resolved": "no", "tenant": "tenant-2"},
}
OF_RUNS: dict[str, dict[str, str]] = {
    "a common status": {"status": "completed"},
    "a rare status": {"status": "failed"},
    "a status that none has": {"status": "lost"},
}
ASKED = [
    *(("run", name, asked) for name, asked in {**QUESTIONS, **OF_RUNS}.items()),
    *(("failure", name, asked) for name, asked in {**QUESTIONS, **OF_FAILURES}.items()),
]


def address(kind: str, asked: dict[str, str]) -> str:
    return f"{reverse(f'admin:kumiko_tenantvisible{kind}_changelist')}?{urlencode(asked)}"


@pytest.mark.parametrize(
    ("kind", "asked"),
    [(kind, asked) for kind, _, asked in ASKED],
    ids=[f"{kind}: {name}" for kind, name, _ in ASKED],
)
def test_every_filter_uses_an_index(kind: str, asked: dict[str, str], admin_client: Client) -> None:
    """Issue 5, Build 8."""
    table = MODELS[kind]._meta.db_table
    few = "subject" in asked
    assert_indexed(admin_client, address(kind, asked), statements=1, few=few, tables=(table,))


@pytest.mark.parametrize("kind", MODELS)
def test_so_does_the_list_of_a_tenants_staff(kind: str) -> None:
    user = User.objects.create_user("staff", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename=f"view_tenantvisible{kind}"))
    client = Client()
    client.force_login(user)
    table = MODELS[kind]._meta.db_table
    with tenant_scope("tenant-13"):
        html = assert_indexed(client, address(kind, {}), statements=1, tables=(table,))
    assert "tenant-13" in html
    assert "tenant-14" not in html
