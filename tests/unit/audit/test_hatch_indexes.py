"""The list of uses of escape hatches is answered from an index (user-needs 49)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from kumiko_django.audit.models import EscapeHatchUse
from kumiko_django.types.ids import uuid7
from tests.unit.history.test_admin_indexes import assert_indexed

pytestmark = pytest.mark.django_db

LIST = "admin:kumiko_escapehatchuse_changelist"
ASKED: dict[str, dict[str, str]] = {
    "nothing": {},
    "a common kind": {"kind": "unsafe_raw"},
    "a rare kind": {"kind": "global_writes"},
    "a job": {"job": "testapp:job:number-3"},
    "a tenant": {"tenant": "tenant-3"},
    "what was refused": {"refused": "yes"},
    "what was not": {"refused": "no"},
    "a run": {"q": str(uuid7())},
}


@pytest.fixture(scope="module", autouse=True)
def _rows(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    now = timezone.now()
    with django_db_blocker.unblock():
        EscapeHatchUse.objects.bulk_create(
            [
                EscapeHatchUse(
                    id=uuid7(), kind="unsafe_raw" if n % 50 else "global_writes",
                    job_name=f"testapp:job:number-{n % 150}", tenant_id=f"tenant-{n % 200}",
                    refused=n % 100 == 0, run_id=uuid7(), used_at=now, last_used_at=now,
                )
                for n in range(6000)
            ],
            batch_size=1000,
        )  # fmt: skip
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
        yield
        EscapeHatchUse.objects.all().delete()


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_every_list_is_served_by_an_index(admin_client: Client, asked: dict[str, str]) -> None:
    """Design 6: whatever it is filtered by, and without counting a table."""
    table = EscapeHatchUse._meta.db_table
    page = f"{reverse(LIST)}?{urlencode(asked)}"
    assert_indexed(admin_client, page, statements=1, few="q" in asked, tables=(table,))
