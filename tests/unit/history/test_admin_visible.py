"""The admin's lists of what tenants see, and that staff of a tenant see nobody else's (issue 5)."""

from __future__ import annotations

import contextlib
import re
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import translation
from pytest_django import Settings

from kumiko_django import VisibleFailure, registry, system_scope, tenant_scope
from kumiko_django.history.models import JobRun
from kumiko_django.history.visible import Seen, write_visible
from kumiko_django.history.visible_models import TenantVisibleFailure, TenantVisibleRun
from kumiko_django.types.ids import SYSTEM
from kumiko_django.types.visible import Visible, subject_of
from tests.unit.history.admin_rows import make_run
from tests.unit.history.events import ended

pytestmark = pytest.mark.django_db

MODELS = ("jobrun", "tenantvisiblerun", "tenantvisiblefailure")
TWO = MODELS[1:]
VIEW = [f"view_{model}" for model in MODELS]


def write(
    status: Any = "failed", *, tenant_id: str = "acme", job: str = "a:job:b", **values: Any
) -> JobRun:
    """A run as the recorder writes it, with all that is seen of it."""
    subject = subject_of(values, list(values))
    run = make_run(tenant_id=tenant_id, job_name=job, status=status, final=True)
    visible = Visible(tenant_id, job, run.started_at, subject, "app.message", subject)
    write_visible("default", [Seen(visible, run.id, ended(run.id, status=status))])
    return run


def url(model: str, page: str = "changelist", *arguments: Any) -> str:
    return reverse(f"admin:kumiko_{model}_{page}", args=arguments)


def listed(client: Client, model: str, **parameters: str) -> list[str]:
    """The tenants and subjects of a list's rows, newest first."""
    response = client.get(f"{url(model)}?{urlencode(parameters)}")
    assert response.status_code == 200
    html = response.content.decode()
    tenants = re.findall(r'<td class="field-tenant">(.*?)</td>', html)
    subjects = re.findall(r'<td class="field-about">(?:<a [^>]*>)?(.*?)(?:</a>)?</td>', html)
    plain = [re.sub("<[^>]*>", "", tenant) for tenant in tenants]
    if model == "jobrun":
        return plain
    return [f"{tenant}: {subject}" for tenant, subject in zip(plain, subjects, strict=True)]


def staff(*permissions: str) -> Client:
    user = User.objects.create_user("staff", is_staff=True)
    user.user_permissions.set(
        Permission.objects.filter(content_type__app_label="kumiko", codename__in=permissions)
    )
    assert user.user_permissions.count() == len(permissions)
    client = Client()
    client.force_login(user)
    return client


@pytest.mark.parametrize("model", TWO)
def test_lists_and_pages_show_all_but_texts_of_errors(model: str, admin_client: Client) -> None:
    """B184: with a link to the run, for operators."""
    run = write(id=7, kind="late")
    JobRun.objects.filter(pk=run.pk).update(error="E: secret")
    assert listed(admin_client, model) == ["acme: id = 7, kind = &quot;late&quot;"]
    record = (TenantVisibleRun if model == TWO[0] else TenantVisibleFailure).objects.get()
    html = admin_client.get(url(model, "change", record.pk)).content.decode()
    assert url("jobrun", "change", run.pk) in html
    assert "kind = &quot;late&quot;" in html
    assert ("app.message" in html) == (model == TWO[1])
    assert "secret" not in html


@pytest.mark.parametrize("model", TWO)
@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"tenant": "globex"}, ["globex: id = 7"]),
        ({"tenant": "acme"}, ["acme: id = &quot;7&quot;", "acme: id = 8"]),
        ({"job": "a:job:c"}, ["globex: id = 7"]),
        ({"subject": "id=7"}, ["acme: id = &quot;7&quot;", "globex: id = 7"]),
        ({"subject": "id=7", "tenant": "globex"}, ["globex: id = 7"]),
        ({"subject": '1:[["id","i","7"]]'}, ["globex: id = 7"]),
        ({"subject": "id=nothing"}, []),
        ({"subject": "no field"}, []),
        ({"subject": "a=1,b=,c=x=y"}, []),
        ({"subject": "\x00"}, []),
        ({"tenant": "nobody"}, []),
    ],
    ids=str,
)
def test_filters(
    model: str, parameters: dict[str, str], expected: list[str], admin_client: Client
) -> None:
    """Issue 5, Build 8: by tenant, job and subject; 7 may be a number or a text."""
    write(id=8)
    write(id=7, tenant_id="globex", job="a:job:c")
    write(id="7")
    assert listed(admin_client, model, **parameters) == expected


def test_failures_are_filtered_by_whether_they_are_resolved(admin_client: Client) -> None:
    """Issue 5, Build 8; what has never failed is no entry."""
    write(id=1)
    write(id=2)
    write("completed", id=2)
    write("completed", id=3)
    assert listed(admin_client, TWO[1]) == ["acme: id = 2", "acme: id = 1"]
    assert listed(admin_client, TWO[1], resolved="no") == ["acme: id = 1"]
    assert listed(admin_client, TWO[1], resolved="yes") == ["acme: id = 2"]
    assert admin_client.get(f"{url(TWO[1])}?resolved=maybe").status_code == 302
    assert listed(admin_client, TWO[0], status="failed") == ["acme: id = 1"]


def test_subjects_without_fields_are_shown_as_nothing(admin_client: Client) -> None:
    write()
    assert listed(admin_client, TWO[1]) == ["acme: -"]


def test_only_filters_are_parameters(admin_client: Client) -> None:
    """An address must not filter by a column without an index, nor ask for values one by one."""
    write(id=7)
    for model in TWO:
        response = admin_client.get(f"{url(model)}?message_key__startswith=a&subject__id=7")
        assert response.status_code in (302, 400)


def test_jobs_to_choose_are_those_that_declare_it(admin_client: Client) -> None:
    with registry.isolated():
        from kumiko_django import JobDefinition

        registry.register(
            JobDefinition(
                lambda payload, ctx: None, name="told", app_label="testapp",
                tenant_visible_failure=VisibleFailure("a.b"),
            )
        )  # fmt: skip
        html = admin_client.get(url(TWO[1])).content.decode()
        assert "?job=testapp%3Ajob%3Atold" in html
        assert "testapp%3Ajob%3Arecord" not in html
        assert "testapp%3Ajob%3Atold" not in admin_client.get(url(TWO[0])).content.decode()


def test_pages_are_cut_without_counting(admin_client: Client) -> None:
    """User-needs 49: as the list of runs."""
    for number in range(53):
        write(id=number)
    first = listed(admin_client, TWO[1])
    assert (len(first), first[0]) == (50, "acme: id = 52")
    html = admin_client.get(url(TWO[1])).content.decode()
    assert "50 records on this page" in html
    older = re.search(r'<a href="\?p=(older-[^"]+)" rel="next"', html)
    assert older is not None
    assert listed(admin_client, TWO[1], p=older[1]) == [
        "acme: id = 2", "acme: id = 1", "acme: id = 0",
    ]  # fmt: skip


@pytest.mark.parametrize("model", TWO)
def test_nobody_can_change_anything(model: str, admin_client: Client) -> None:
    """Read-only, for superusers, too."""
    write(id=7)
    record = (TenantVisibleRun if model == TWO[0] else TenantVisibleFailure).objects.get()
    data = {"action": "delete_selected", "_selected_action": str(record.pk), "post": "yes"}
    for page, arguments in (
        ("changelist", ()), ("change", (record.pk,)), ("add", ()), ("delete", (record.pk,)),
    ):  # fmt: skip
        assert admin_client.post(url(model, page, *arguments), data).status_code == 403, page
    record.refresh_from_db()


def as_whom(scope: str) -> contextlib.AbstractContextManager[Any]:
    if scope == "none":
        return contextlib.nullcontext()
    return system_scope("a test") if scope == "system" else tenant_scope(scope)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("scope", "sees"), [("acme", True), ("none", False), ("system", False)])
def test_staff_of_a_tenant_see_its_records_only(model: str, scope: str, sees: bool) -> None:
    """Issue 5, Build 8: the list, filters, suggestions, and pages whose ids are guessed."""
    others = write(id=7, tenant_id="globex", job="other:job:x")
    of_system = write(id=7, tenant_id=SYSTEM)
    own = write(id=8)
    client = staff(*VIEW)
    records: dict[str, Any] = {
        "jobrun": JobRun, TWO[0]: TenantVisibleRun, TWO[1]: TenantVisibleFailure,
    }  # fmt: skip
    pk = {
        run.tenant_id: run.pk
        if model == "jobrun"
        else records[model].objects.get(tenant_id=run.tenant_id).pk
        for run in (others, of_system, own)
    }
    shown = "acme" if model == "jobrun" else "acme: id = 8"
    with as_whom(scope):
        for asked in ({}, {"tenant": "globex"}, {"tenant": SYSTEM}, {"job": "other:job:x"}):
            expected = [shown] if sees and "job" not in asked else []
            assert listed(client, model, **asked) == expected
        html = client.get(url(model)).content.decode()
        assert "globex" not in html
        assert 'name="tenant"' not in html
        assert client.get(url(model, "change", pk["acme"])).status_code == (200 if sees else 302)
        for page in ("change", "history"):
            for tenant_id in ("globex", SYSTEM):
                assert client.get(url(model, page, pk[tenant_id])).status_code == 302
        if model != "jobrun":
            assert listed(client, model, subject="id=7") == []


@pytest.mark.parametrize("model", MODELS)
def test_the_middleware_says_whose_staff_it_is(model: str, settings: Settings) -> None:
    """Issue 5, Build 2 and 8: by ``REQUEST_TENANT``, and by nothing in the address."""
    write(id=7, tenant_id="globex")
    write(id=8)
    middleware = "kumiko_django.tenancy.middleware.RequestScopeMiddleware"
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, middleware]
    tenants = {"staff": "acme"}
    settings.KUMIKO = {
        **settings.KUMIKO, "REQUEST_TENANT": lambda request: tenants.get(str(request.user)),
    }  # fmt: skip
    client = staff(f"view_{model}")
    assert [row[:4] for row in listed(client, model)] == ["acme"]
    assert [row[:4] for row in listed(client, model, tenant="globex")] == ["acme"]


@pytest.mark.parametrize("model", MODELS)
def test_whoever_may_sees_all_tenants_in_any_scope(model: str) -> None:
    """``kumiko.view_all_tenants``; and it alone shows nothing."""
    for tenant_id in ("acme", "globex", SYSTEM):
        write(id=7, tenant_id=tenant_id)
    client = staff(f"view_{model}", "view_all_tenants")
    with tenant_scope("acme"):
        assert len(listed(client, model)) == 3
    assert len(listed(client, model)) == 3
    others = set(MODELS) - {model}
    assert {client.get(url(other)).status_code for other in others} == {403}


@pytest.mark.parametrize("model", MODELS)
def test_without_tenancy_nobody_is_kept_apart(model: str, settings: Settings) -> None:
    write(id=7, tenant_id=SYSTEM)
    settings.KUMIKO = {key: v for key, v in settings.KUMIKO.items() if key != "TENANTS"}
    assert len(listed(staff(f"view_{model}"), model)) == 1


def test_other_runs_of_a_job_are_shown_only_of_the_tenant() -> None:
    """Another producer may give the jobs of two tenants one id."""
    own = make_run(queue_job_id="same")
    make_run(queue_job_id="same", tenant_id="globex", error="E: of globex")
    client = staff("view_jobrun")
    with tenant_scope("acme"):
        html = client.get(url("jobrun", "change", own.pk)).content.decode()
    assert "of globex" not in html


@pytest.mark.parametrize("may", [True, False])
def test_the_run_is_a_link_for_whoever_may_follow_it(may: bool) -> None:
    run = write(id=7)
    client = staff(f"view_{TWO[0]}", *(["view_jobrun"] if may else []))
    with tenant_scope("acme"):
        record = TenantVisibleRun.objects.get()
        html = client.get(url(TWO[0], "change", record.pk)).content.decode()
    assert str(run.pk) in html
    assert (url("jobrun", "change", run.pk) in html) is may


def test_the_pages_speak_german(admin_client: Client, settings: Settings) -> None:
    settings.LANGUAGE_CODE = "de"
    write(id=7)
    with translation.override("de"):
        failures = admin_client.get(url(TWO[1])).content.decode()
        runs = admin_client.get(url(TWO[0])).content.decode()
    for text in ("Für Mandanten sichtbare Fehler", "nicht behoben", "Gegenstand", "Meldung",
                 "1 Eintrag auf dieser Seite", "Feld und Wert"):  # fmt: skip
        assert text in failures or text.lower() in failures.lower(), text
    assert "sichtbare läufe" in runs.lower()
