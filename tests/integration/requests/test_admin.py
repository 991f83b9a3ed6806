"""The admin of a tenant model, as ``docs/howto/tenants.md`` has it for operators."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.test import Client
from django.urls import path
from pytest_django import Settings

from kumiko_django import current_tenant_id, tenant_scope
from kumiko_django.tenancy.checks import MIDDLEWARE
from tests.app.models import Project
from tests.architecture.sources import ROOT

pytestmark = [pytest.mark.django_db, pytest.mark.once]


def needs_tenant() -> Any:
    """The class ``NeedsTenant`` of the page."""
    page = (ROOT / "docs" / "howto" / "tenants.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```python\n(# billing/admin\.py\n.*?)```", page, re.DOTALL)
    [found] = [node for node in ast.parse(block).body if getattr(node, "name", "") == "NeedsTenant"]
    names: dict[str, Any] = {
        "PermissionDenied": PermissionDenied,
        "current_tenant_id": current_tenant_id,
    }
    exec(ast.unparse(found), names)  # noqa: S102  (our own text)
    return names["NeedsTenant"]


site = admin.AdminSite()
site.register(
    Project, type("ProjectAdmin", (needs_tenant(), admin.ModelAdmin), {"fields": ["name"]})
)
urlpatterns = [path("admin/", site.urls)]
PROJECTS = "/admin/testapp/project/"


def tenant_of(request: HttpRequest) -> str | None:
    """What the operator has chosen."""
    chosen: str | None = request.session.get("tenant")
    return chosen


@pytest.fixture
def operator(settings: Settings) -> Client:
    settings.ROOT_URLCONF = __name__
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
    settings.KUMIKO = {**settings.KUMIKO, "REQUEST_TENANT": f"{__name__}.tenant_of"}
    client = Client()
    client.force_login(User.objects.create_superuser("operator"))
    return client


def choose(client: Client, tenant_id: str) -> None:
    session = client.session
    session["tenant"] = tenant_id
    session.save()


@pytest.fixture
def keys() -> dict[str, int]:
    """The key of a project of each tenant."""
    found = {}
    for tenant_id in ("acme", "globex"):
        with tenant_scope(tenant_id):
            found[tenant_id] = Project.objects.create(name=f"{tenant_id}-project").pk
    return found


@pytest.mark.parametrize("page", ["", "add/", "{}/change/", "{}/delete/", "{}/history/"])
def test_pages_are_refused_until_a_tenant_is_chosen(
    operator: Client, keys: dict[str, int], page: str
) -> None:
    url = PROJECTS + page.format(keys["acme"])
    assert operator.get(url).status_code == 403

    choose(operator, "acme")

    assert operator.get(url).status_code == 200


def test_only_rows_of_the_chosen_tenant_are_there(operator: Client, keys: dict[str, int]) -> None:
    assert PROJECTS not in operator.get("/admin/").content.decode()
    choose(operator, "acme")

    assert PROJECTS in operator.get("/admin/").content.decode()
    listed = operator.get(PROJECTS).content.decode()
    assert "acme-project" in listed
    assert "globex-project" not in listed
    assert operator.get(f"{PROJECTS}{keys['globex']}/change/").status_code == 302

    operator.post(f"{PROJECTS}add/", {"name": "new"})

    with tenant_scope("acme"):
        assert Project.objects.get(name="new").tenant_id == "acme"
