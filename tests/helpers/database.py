"""The test database seen from outside: who is connected to it, and what happens without it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import psycopg
from django.core.management.color import no_style
from django.db import connection, connections

KEPT_TABLES = {"auth_permission", "django_content_type"}
"""Written by the migrations, and by no test."""


def empty_after_test(test_case: Any) -> None:
    """Do what Django's ``TransactionTestCase`` does after a test, in a tenth of the time.

    Only tables that have rows are emptied. Content types and permissions stay: to make them anew
    after each of a thousand tests is what takes that long.
    """
    for alias in test_case._databases_names(include_mirrors=False):
        database = connections[alias]
        if filled := _filled(alias, str(database.settings_dict["NAME"])):
            cascade = database.vendor == "postgresql"  # to tables that have no rows
            statements = database.ops.sql_flush(no_style(), filled, allow_cascade=cascade)
            database.ops.execute_sql_flush(statements)


def _filled(alias: str, name: str) -> list[str]:
    with connections[alias].cursor() as cursor:
        cursor.execute(_which_are_filled(alias, name))
        return [table for (table,) in cursor.fetchall()]


@cache
def _which_are_filled(alias: str, name: str) -> str:
    database = connections[alias]
    tables = set(database.introspection.django_table_names(only_existing=True)) - KEPT_TABLES
    return " UNION ALL ".join(
        f"SELECT '{table}' WHERE EXISTS (SELECT 1 FROM {database.ops.quote_name(table)})"  # noqa: S608
        for table in sorted(tables)
    )


def connection_count() -> int | None:
    """Say how many clients are connected to the test database.

    PostgreSQL is asked itself (``pg_stat_activity``), from another of its databases, so that
    whoever asks is not counted. It drops a client a moment after the client has closed: what it
    says counts once it says so twice. The test's own Django connection is counted if it is open.
    SQLite has no such number: None.
    """
    if connection.vendor != "postgresql":
        return None
    with _postgres("postgres") as outside:
        earlier = _count_clients(outside)
        for _ in range(50):
            time.sleep(0.02)
            count = _count_clients(outside)
            if count == earlier:
                break
            earlier = count
    return count


def _count_clients(outside: psycopg.Connection) -> int:
    row = outside.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
        " AND datname = %s",
        [str(connection.settings_dict["NAME"])],
    ).fetchone()
    assert row is not None
    return int(row[0])


def terminate_connections() -> int:
    """Cut every connection to the test database (PostgreSQL only), and say how many there were."""
    with _postgres("postgres") as outside:
        return _terminate(outside)


@contextmanager
def database_away() -> Iterator[None]:
    """Take the database away for the length of a ``with`` block.

    PostgreSQL cuts all connections to the test database and accepts no new ones. SQLite, which is
    a file, is locked for writing: writers get "database is locked" after their busy timeout
    (``KUMIKO_TEST_SQLITE_TIMEOUT``, in seconds, for processes that should not wait 20 s).

    Handlers that need the database fail meanwhile; the jobs ``quiet`` and ``quiet-async`` do not.
    The test itself cannot query inside the block; its own connections are closed on both ends.
    """
    connections.close_all()
    if connection.vendor == "postgresql":
        with _postgres("postgres") as outside:
            name = psycopg.sql.Identifier(str(connection.settings_dict["NAME"]))
            allow = psycopg.sql.SQL("ALTER DATABASE {} WITH ALLOW_CONNECTIONS {}")
            outside.execute(allow.format(name, psycopg.sql.SQL("false")))
            try:
                _terminate(outside)
                yield
            finally:
                outside.execute(allow.format(name, psycopg.sql.SQL("true")))
    else:
        locker = sqlite3.connect(
            str(connection.settings_dict["NAME"]), timeout=20, isolation_level=None
        )
        try:
            locker.execute("BEGIN IMMEDIATE")
            yield
        finally:
            locker.close()
    connections.close_all()


def _terminate(outside: psycopg.Connection) -> int:
    cursor = outside.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE backend_type = 'client backend' AND datname = %s AND pid <> pg_backend_pid()",
        [connection.settings_dict["NAME"]],
    )
    return len(cursor.fetchall())


@contextmanager
def _postgres(database: str) -> Iterator[psycopg.Connection]:
    """Connect beside Django, so that any thread and any coroutine may ask."""
    settings = connection.settings_dict
    wanted = {
        "dbname": database,
        "user": settings["USER"],
        "password": settings["PASSWORD"],
        "host": settings["HOST"],
        "port": settings["PORT"],
    }
    with psycopg.connect(
        **{name: value for name, value in wanted.items() if value}, autocommit=True
    ) as outside:
        yield outside
