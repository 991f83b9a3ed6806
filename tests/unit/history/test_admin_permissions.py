"""Who may see runs in the admin, and that nobody may change them."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from pytest_django import DjangoAssertNumQueries

from kumiko_django.history.models import JobRun
from tests.unit.history.admin_rows import make_log, make_run

pytestmark = pytest.mark.django_db

LIST = "admin:kumiko_jobrun_changelist"


def staff(*permissions: str) -> Client:
    user = User.objects.create_user("staff", is_staff=True)
    user.user_permissions.set(
        Permission.objects.filter(content_type__app_label="kumiko", codename__in=permissions)
    )
    assert user.user_permissions.count() == len(permissions)
    client = Client()
    client.force_login(user)
    return client


def pages(run: JobRun) -> dict[str, str]:
    return {
        "list": reverse(LIST),
        "run": reverse("admin:kumiko_jobrun_change", args=[run.pk]),
        "add": reverse("admin:kumiko_jobrun_add"),
        "delete": reverse("admin:kumiko_jobrun_delete", args=[run.pk]),
        "log entries": reverse("admin:kumiko_jobrun_history", args=[run.pk]),
    }


def test_without_permission_there_is_nothing_to_see() -> None:
    """Design 7: to see the records of all tenants is no permission to see any."""
    run = make_run()
    client = staff("view_all_tenants")

    assert "Job runs" not in client.get(reverse("admin:index")).content.decode()
    assert {client.get(url).status_code for url in pages(run).values()} == {403}
    assert {client.post(url).status_code for url in pages(run).values()} <= {403, 405}


def test_whoever_is_no_staff_is_sent_to_the_login(client: Client) -> None:
    run = make_run()

    for url in pages(run).values():
        assert client.get(url)["Location"].startswith(reverse("admin:login"))


def test_the_permission_to_view_shows_list_and_run(
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    run = make_run(error="Refused: shown")
    make_log(run, 1, message="logged and shown")
    client = staff("view_jobrun", "view_all_tenants")
    urls = pages(run)

    assert "Job runs" in client.get(reverse("admin:index")).content.decode()
    with django_assert_max_num_queries(10):
        assert "Refused: shown" in client.get(urls["list"]).content.decode()
    with django_assert_max_num_queries(10):
        assert "logged and shown" in client.get(urls["run"]).content.decode()


@pytest.mark.parametrize("codename", ["add_jobrun", "delete_jobrun", "view_jobrunlog"])
def test_other_permissions_show_nothing(codename: str) -> None:
    run = make_run()
    client = staff(codename)

    assert client.get(pages(run)["list"]).status_code == 403
    assert client.get(pages(run)["run"]).status_code == 403


@pytest.mark.parametrize("everything", [False, True], ids=["all permissions", "superuser"])
def test_nobody_can_change_anything(everything: bool, admin_client: Client) -> None:
    run = make_run(reason="as it was")
    client = (
        admin_client
        if everything
        else staff(
            "view_jobrun", "add_jobrun", "change_jobrun", "delete_jobrun", "view_all_tenants"
        )
    )
    urls = pages(run)
    data = {
        "action": "delete_selected",
        "_selected_action": str(run.pk),
        "index": "0",
        "post": "yes",
        "reason": "changed",
        "_save": "Save",
    }

    for name in ("list", "run", "add", "delete"):
        assert client.post(urls[name], data).status_code == 403, name
    assert client.get(urls["add"]).status_code == 403
    assert client.get(urls["delete"]).status_code == 403
    assert list(JobRun.objects.values_list("pk", "reason")) == [(run.pk, "as it was")]


def test_lines_of_the_log_are_no_entry_of_the_menu(admin_client: Client) -> None:
    index = admin_client.get(reverse("admin:index")).content.decode()

    entries = set(re.findall(r"/admin/kumiko/([a-z]+)/", index))
    assert entries == {"escapehatchuse", "jobrun", "tenantvisiblefailure", "tenantvisiblerun"}
    assert "model-jobrunlog" not in index
    assert admin_client.get("/admin/kumiko/jobrunlog/").status_code == 404


def test_the_list_offers_no_actions(admin_client: Client) -> None:
    make_run()
    html = admin_client.get(reverse(LIST)).content.decode()

    assert 'name="action"' not in html
    assert "_selected_action" not in html
