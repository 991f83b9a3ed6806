"""Uses of escape hatches in the admin: read-only, filtered by an index, for whom they concern."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone, translation

from kumiko_django import tenant_scope
from kumiko_django.audit import retention
from kumiko_django.audit.models import EscapeHatchUse
from kumiko_django.types.ids import SYSTEM_USER_ID, first_id_at, uuid7

pytestmark = pytest.mark.django_db

LIST = "admin:kumiko_escapehatchuse_changelist"
RUN = uuid7()


def make(**values: Any) -> EscapeHatchUse:
    now = timezone.now()
    given: dict[str, Any] = {
        "kind": "unsafe_raw", "job_name": "testapp:job:record", "tenant_id": "acme",
        "actor_id": SYSTEM_USER_ID, "caller_id": "7", "reason": "a report", "run_id": RUN,
        "detail": "ctx.db.unsafe_raw()", "used_at": now, "last_used_at": now,
    }  # fmt: skip
    return EscapeHatchUse.objects.create(**given | values)


def client_of(*permissions: str) -> Client:
    user = User.objects.create_user("staff", is_staff=True)
    user.user_permissions.set(
        Permission.objects.filter(content_type__app_label="kumiko", codename__in=permissions)
    )
    client = Client()
    client.force_login(user)
    return client


def reasons(client: Client, **parameters: str) -> list[str]:
    response = client.get(f"{reverse(LIST)}?{urlencode(parameters)}")
    assert response.status_code == 200
    return re.findall(r'<td class="field-reason">(.*?)</td>', response.content.decode())


def test_the_list_and_its_filters(admin_client: Client) -> None:
    """Issue 5, build 4: newest first; by kind, job, tenant and refused; and by run."""
    make(reason="one")
    make(reason="two", refused=True)
    make(reason="three", kind="global_writes", tenant_id="globex")
    make(reason="four", job_name="testapp:job:other", run_id=uuid7())

    assert reasons(admin_client) == ["four", "three", "two", "one"]
    assert reasons(admin_client, refused="yes") == ["two"]
    assert reasons(admin_client, refused="no") == ["four", "three", "one"]
    assert reasons(admin_client, kind="global_writes") == ["three"]
    assert reasons(admin_client, tenant="globex") == ["three"]
    assert reasons(admin_client, job="testapp:job:other") == ["four"]
    assert reasons(admin_client, q=str(RUN)) == ["three", "two", "one"]
    assert reasons(admin_client, q="no run") == []
    assert admin_client.get(f"{reverse(LIST)}?refused=maybe").status_code == 302
    assert admin_client.get(f"{reverse(LIST)}?reason=one").status_code == 400


def test_a_page_shows_all_that_is_known(admin_client: Client) -> None:
    """B151: actor and caller, reason, what was done, how often, and the run."""
    made = make(count=42)
    page = reverse("admin:kumiko_escapehatchuse_change", args=[made.pk])
    html = admin_client.get(page).content.decode()

    for text in (SYSTEM_USER_ID, "7", "a report", "ctx.db.unsafe_raw()", "42", str(RUN), "acme"):
        assert text in html
    assert reverse("admin:kumiko_jobrun_change", args=[RUN]) in html


def test_nothing_can_be_changed(admin_client: Client) -> None:
    """Issue 5, build 4: the page is read-only, for superusers too."""
    made = make()
    for name, arguments in (("add", []), ("delete", [made.pk])):
        page = reverse(f"admin:kumiko_escapehatchuse_{name}", args=arguments)
        assert admin_client.get(page).status_code == 403
        assert admin_client.post(page, {"post": "yes"}).status_code == 403
    page = reverse("admin:kumiko_escapehatchuse_change", args=[made.pk])
    assert admin_client.post(page, {"reason": "x"}).status_code == 403
    assert admin_client.post(reverse(LIST), {"action": "delete_selected"}).status_code == 403
    assert EscapeHatchUse.objects.get().reason == "a report"


def test_who_sees_what() -> None:
    """Issue 5, build 8: a tenant's own staff see those of their tenant."""
    make(reason="of acme")
    make(reason="of globex", tenant_id="globex")
    client = client_of("view_escapehatchuse")
    with tenant_scope("acme"):
        assert reasons(client) == ["of acme"]
    assert reasons(client) == []
    User.objects.get().user_permissions.add(Permission.objects.get(codename="view_all_tenants"))
    assert reasons(client) == ["of globex", "of acme"]


def test_without_permission_there_is_nothing_to_see() -> None:
    """Issue 5, build 4: the permission is Django's own."""
    make()
    assert client_of("view_jobrun").get(reverse(LIST)).status_code == 403


def test_it_speaks_german(admin_client: Client) -> None:
    make(refused=True)
    with translation.override("de"):
        html = admin_client.get(reverse(LIST), headers={"accept-language": "de"}).content.decode()
    for text in ("abgelehnt", "SQL", "Mandant", "Grund"):
        assert text in html


def test_old_records_go(settings: Any) -> None:
    """Issue 5, build 4: after ``AUDIT_AGE``, a year by default, in batches; None keeps all."""
    now = timezone.now()
    for days in (400, 370, 360, 0):
        make(reason=str(days), id=first_id_at(now - dt.timedelta(days=days)))
    settings.KUMIKO = {**settings.KUMIKO, "AUDIT_AGE": None}
    assert retention.prune(now, lambda seconds: True) == 0
    settings.KUMIKO = {k: v for k, v in settings.KUMIKO.items() if k != "AUDIT_AGE"}
    assert retention.prune(now, lambda seconds: True) == 2
    settings.KUMIKO = {**settings.KUMIKO, "AUDIT_AGE": dt.timedelta(days=30)}
    assert retention.prune(now, lambda seconds: False) == 1
    assert list(EscapeHatchUse.objects.values_list("reason", flat=True)) == ["0"]
