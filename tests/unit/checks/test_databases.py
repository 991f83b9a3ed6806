"""System checks of the router and of row-level security, each id by one test, with a hint."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.core import checks
from django.core.checks import CheckMessage
from django.db import connection, connections
from pytest_django import Settings

from kumiko_django import checks as kumiko_checks
from kumiko_django.tenancy.checks_databases import ROUTER, check_roles
from kumiko_django.tenancy.routers import TenantRouter
from tests.integration.databases.placing import database_of

pytestmark = pytest.mark.once


class OwnRouter(TenantRouter):
    """A project's own."""


class OtherRouter:
    """Somebody else's, without any opinion."""


def found() -> list[CheckMessage]:
    """What is found of what this module is about."""
    messages = checks.run_checks(tags=[kumiko_checks.TAG])
    return [m for m in messages if m.id and re.fullmatch(r"kumiko\.[EW]03\d", m.id)]


def the_only_one(check_id: str) -> CheckMessage:
    messages = found()
    assert [message.id for message in messages] == [check_id]
    assert messages[0].hint
    return messages[0]


def change(settings: Settings, **changes: Any) -> None:
    settings.KUMIKO = {**settings.KUMIKO, **changes}


@pytest.mark.parametrize("router", [ROUTER, f"{__name__}.OwnRouter", OwnRouter()])
def test_a_router_that_is_there_is_fine(router: Any, settings: Settings) -> None:
    settings.DATABASE_ROUTERS = [router]
    change(settings, TENANT_DATABASE=lambda tenant_id: "default", HISTORY_DATABASE="default")

    assert found() == []


@pytest.mark.parametrize(
    "changes", [{"TENANT_DATABASE": lambda tenant_id: "default"}, {"HISTORY_DATABASE": "default"}]
)
def test_e030_the_router_is_not_installed(changes: dict[str, Any], settings: Settings) -> None:
    settings.DATABASE_ROUTERS = [f"{__name__}.OtherRouter"]
    change(settings, **changes)

    message = the_only_one("kumiko.E030")

    assert isinstance(message, checks.Error)
    assert next(iter(changes)) in message.msg


def test_w030_there_are_no_tenants_to_place(settings: Settings) -> None:
    settings.DATABASE_ROUTERS = [ROUTER]
    change(settings, TENANT_DATABASE=lambda tenant_id: "default", TENANTS=None)

    assert isinstance(the_only_one("kumiko.W030"), checks.Warning)


@pytest.mark.parametrize("broken", ["no.where", lambda: "default"])
def test_e031_nobody_can_be_asked_for_the_database(broken: Any, settings: Settings) -> None:
    settings.DATABASE_ROUTERS = [ROUTER]
    change(settings, TENANT_DATABASE=broken)

    assert isinstance(the_only_one("kumiko.E031"), checks.Error)


@pytest.mark.parametrize(
    "changes", [{"TENANT_DATABASE": database_of}, {"HISTORY_DATABASE": "eu"}], ids=str
)
def test_e032_a_database_that_is_not_there(changes: dict[str, Any], settings: Settings) -> None:
    settings.DATABASE_ROUTERS = [ROUTER]
    change(settings, **changes)

    message = the_only_one("kumiko.E032")

    assert isinstance(message, checks.Error)
    assert "'eu'" in message.msg


def test_w031_no_database_has_policies(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    change(settings, ROW_LEVEL_SECURITY=True)
    monkeypatch.setattr(connection, "vendor", "sqlite", raising=False)

    assert isinstance(the_only_one("kumiko.W031"), checks.Warning)


def test_w032_a_transaction_pooler(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    change(settings, ROW_LEVEL_SECURITY=True)
    # Nothing is asked of the database, whatever it is.
    monkeypatch.setattr(connections["default"], "vendor", "postgresql", raising=False)
    assert found() == []
    monkeypatch.setitem(connection.settings_dict, "DISABLE_SERVER_SIDE_CURSORS", True)

    message = the_only_one("kumiko.W032")

    assert isinstance(message, checks.Warning)
    assert "inside transactions only" in message.msg


def test_without_the_setting_no_role_is_asked_for() -> None:
    assert check_roles(databases=["default"]) == []
