"""A database of its own on a real PostgreSQL, with policies, seen by a role that they hold for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import environ
import psycopg
import pytest
from django.apps import apps
from django.contrib.contenttypes.models import ContentType
from django.db import connections
from django.db.migrations.state import ProjectState
from pytest_django import Settings
from pytest_django.plugin import DjangoDbBlocker

from kumiko_django import system_scope, tenant_scope
from kumiko_django.tenancy.operations import EnableRowLevelSecurity
from tests.app.models import (
    Comment,
    Duty,
    Epic,
    Invoice,
    Label,
    Memo,
    Meter,
    Organisation,
    Parcel,
    Person,
    Project,
    Task,
    Topic,
)
from tests.helpers.postgres import Postgres

ROLE, OWNER = "policed", "policed_owner"
"""Aliases: of the role without rights over the tables, and of the superuser that owns them."""

MODELS: tuple[type[Any], ...] = (
    ContentType, Topic, Project, Label, Task, Epic, Person, Duty, Organisation, Invoice, Meter,
    Parcel, Memo, Comment,
)  # fmt: skip
GUARDED = (
    "Project", "Label", "Task", "Epic", "Duty", "Invoice", "Meter", "Parcel", "Memo_tasks",
    "Comment",
)  # fmt: skip
TENANTS = ("acme", "globex")


@pytest.fixture(scope="session")
def server() -> Iterator[dict[str, Any]]:
    """Give how to connect to the run's PostgreSQL, or to one that is started for this."""
    env = environ.Env()
    url = os.environ["DATABASE_URL"]
    own = None if url.startswith("postgres") else Postgres().start()
    try:
        yield environ.Env.db_url_config(own.url if own else env.str("DATABASE_URL"))
    finally:
        if own is not None:
            own.close()


def connect(settings: dict[str, Any], **other: Any) -> psycopg.Connection[Any]:
    """Connect beside Django, without any wrapper."""
    wanted = {
        "dbname": settings["NAME"],
        "user": settings["USER"],
        "password": settings["PASSWORD"],
        "host": settings["HOST"],
        "port": settings["PORT"],
    }
    given = {key: value for key, value in (wanted | other).items() if value}
    return psycopg.connect(**given, autocommit=True)


@pytest.fixture(scope="module")
def databases(server: dict[str, Any], django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Make the database, its role, tables and policies, and two aliases to it."""
    name = f"kumiko_policies_{uuid4().hex[:8]}"
    role = {"USER": f"{name}_role", "PASSWORD": uuid4().hex}
    with connect(server) as outside:
        outside.execute(f"CREATE DATABASE {name}")
        outside.execute(
            f"CREATE ROLE {role['USER']} LOGIN NOSUPERUSER NOBYPASSRLS "
            f"PASSWORD '{role['PASSWORD']}'"
        )
    common = {**connections.databases["default"], **server, "NAME": name, "OPTIONS": {}}
    common |= {"CONN_MAX_AGE": None, "TEST": {**common["TEST"], "NAME": name, "MIRROR": None}}
    connections.databases[OWNER] = common
    connections.databases[ROLE] = {**common, **role}
    try:
        with django_db_blocker.unblock():
            _make_tables(role["USER"])
            yield
    finally:
        for alias in (ROLE, OWNER):
            with django_db_blocker.unblock():
                connections[alias].close()
            del connections[alias], connections.databases[alias]
        with connect(server) as outside:
            outside.execute(f"DROP DATABASE {name} WITH (FORCE)")
            outside.execute(f"DROP ROLE {role['USER']}")


def _make_tables(role: str) -> None:
    owner = connections[OWNER]
    state = ProjectState.from_apps(apps)
    with owner.schema_editor() as editor:
        for model in MODELS:
            editor.create_model(model)
        for name in GUARDED:
            operation = EnableRowLevelSecurity(f"testapp.{name}")
            operation.database_forwards("testapp", editor, state, state)
    with owner.cursor() as cursor:
        cursor.execute(
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}"
        )
        cursor.execute(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role}")


@pytest.fixture
def policed(
    databases: None, settings: Settings, django_db_blocker: DjangoDbBlocker
) -> Iterator[Any]:
    """Give a fresh guarded connection of the role, on rows of two tenants and of SYSTEM."""
    settings.KUMIKO = {**settings.KUMIKO, "ROW_LEVEL_SECURITY": True}
    with django_db_blocker.unblock():
        connections[ROLE].close()
        del connections[ROLE]
        _make_rows()
        yield connections[ROLE]
        connections[ROLE].close()


def _make_rows() -> None:
    with connections[OWNER].cursor() as cursor:
        tables = ", ".join(f'"{model._meta.db_table}"' for model in MODELS)
        cursor.execute(f"TRUNCATE {tables} RESTART IDENTITY CASCADE")
    for tenant in (*TENANTS, None):
        with tenant_scope(tenant) if tenant else system_scope("reference data"):
            project = Project.objects.using(OWNER).create(name=f"of {tenant}")
            task = Task.objects.using(OWNER).create(code=f"{tenant}-task", project=project)
            label = Label.objects.using(OWNER).create(name=f"{tenant}-label")
            task.labels.add(label)
            Epic.objects.using(OWNER).create(code=f"{tenant}-epic", goal=f"{tenant}-goal")


def codes(table: str = "testapp_task", column: str = "code") -> set[str]:
    """What raw SQL sees of a table as the role, on Django's connection."""
    with connections[ROLE].cursor() as cursor:
        cursor.execute(f"SELECT {column} FROM {table}")  # noqa: S608
        return {str(value) for (value,) in cursor.fetchall()}


def own(tenant: str) -> set[str]:
    """The tasks that a tenant sees: its own and those of SYSTEM."""
    return {f"{whose}-{what}" for whose in (tenant, None) for what in ("task", "epic")}


@contextmanager
def bare(alias: str = ROLE) -> Iterator[psycopg.Connection[Any]]:
    """Connect as the role, past Django."""
    with connect(connections.databases[alias]) as connection:
        yield connection
