"""The test database is real, shared with other processes, and can be taken away."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from django.db import OperationalError, connection, connections

from tests.app.models import Order
from tests.helpers import database
from tests.helpers.fixtures import ConnectionCount, DatabaseAway
from tests.helpers.postgres import MAX_CONNECTIONS
from tests.helpers.processes import run_python

COUNT = """
import django
django.setup()
from tests.app.models import Order
print(Order.objects.count())
"""

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_database_is_configured_for_several_processes() -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SHOW max_connections")
            # A server of the user has what it has.
            assert int(cursor.fetchone()[0]) >= min(MAX_CONNECTIONS, 100)
        else:
            cursor.execute("PRAGMA journal_mode")
            assert cursor.fetchone()[0] == "wal"
            assert connection.settings_dict["OPTIONS"]["transaction_mode"] == "IMMEDIATE"


def test_connections_are_counted(connection_count: ConnectionCount) -> None:
    if connection.vendor != "postgresql":
        assert connection_count() is None
        return
    connections.close_all()
    before = connection_count()
    assert before is not None
    Order.objects.exists()
    assert connection_count() == before + 1
    with database._postgres(str(connection.settings_dict["NAME"])):
        assert connection_count() == before + 2


def test_a_database_that_is_away_refuses_work_and_comes_back(
    database_away: DatabaseAway, monkeypatch: pytest.MonkeyPatch
) -> None:
    Order.objects.create(tenant_id="acme", number="before")
    if connection.vendor == "sqlite":
        monkeypatch.setitem(connection.settings_dict["OPTIONS"], "timeout", 0.1)
    with database_away():
        with pytest.raises(OperationalError):
            Order.objects.create(tenant_id="acme", number="meanwhile")
        connections.close_all()
    Order.objects.create(tenant_id="acme", number="after")
    assert list(Order.objects.values_list("number", flat=True)) == ["before", "after"]


def test_connections_can_be_cut() -> None:
    if connection.vendor != "postgresql":
        with pytest.raises(psycopg.Error):
            database.terminate_connections()
        return
    Order.objects.exists()
    assert database.terminate_connections() >= 1
    with pytest.raises(OperationalError):
        Order.objects.exists()
    connection.close()
    assert not Order.objects.exists()


async def test_what_async_tests_open_is_closed_by_the_kit() -> None:
    await Order.objects.acreate(tenant_id="acme", number="async")
    counted = await asyncio.to_thread(run_python, COUNT)
    assert counted.stdout.strip() == "1", counted.stderr
