"""Two more databases beside the default one: of a tenant, and of the history."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import call_command
from django.db import connections
from django.test import override_settings
from pytest_django import Settings
from pytest_django.plugin import DjangoDbBlocker

from tests.helpers.kumiko_settings import DEFAULT_TENANTS
from tests.integration.databases.placing import ARCHIVE, EU, database_of

PLACED: dict[str, Any] = {
    "TENANTS": DEFAULT_TENANTS,
    "TENANT_DATABASE": database_of,
    "HISTORY_DATABASE": ARCHIVE,
}
ROUTERS = ["kumiko_django.tenancy.routers.TenantRouter"]


@pytest.fixture(scope="module")
def databases(
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[None]:
    """Make and migrate them, with the router in place."""
    created = []
    for alias in (EU, ARCHIVE):
        name = f"kumiko_{alias}_{uuid4().hex[:8]}"
        if connections["default"].vendor == "sqlite":
            name = str(tmp_path_factory.mktemp("databases") / name)
        created.append(name)
        connections.databases[alias] = {**connections.databases["default"], "NAME": name}
    try:
        with django_db_blocker.unblock():
            _create(created)
            with override_settings(KUMIKO=PLACED, DATABASE_ROUTERS=ROUTERS):
                for alias in (EU, ARCHIVE):
                    for app in ("testapp", "kumiko"):
                        call_command("migrate", app, database=alias, verbosity=0)
        yield
    finally:
        for alias in (EU, ARCHIVE):
            with django_db_blocker.unblock():
                connections[alias].close()
            del connections[alias], connections.databases[alias]
        with django_db_blocker.unblock():
            _drop(created)


def _create(names: list[str]) -> None:
    _on_server([f"CREATE DATABASE {name}" for name in names])


def _drop(names: list[str]) -> None:
    if connections["default"].vendor == "sqlite":
        for name in names:
            Path(name).unlink(missing_ok=True)
    _on_server([f"DROP DATABASE {name} WITH (FORCE)" for name in names])


def _on_server(statements: list[str]) -> None:
    if connections["default"].vendor == "postgresql":
        with connections["default"]._nodb_cursor() as cursor:
            for sql in statements:
                cursor.execute(sql)


@pytest.fixture
def placed(databases: None, settings: Settings) -> None:
    """Place the tenants: globex in ``eu``, the others in ``default``; the history in its own."""
    settings.KUMIKO = {**settings.KUMIKO, **PLACED}
    settings.DATABASE_ROUTERS = ROUTERS
