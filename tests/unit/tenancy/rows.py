"""Rows of two tenants and of SYSTEM, for the tests of what a scope reaches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.utils import timezone

from kumiko_django import system_scope, tenant_scope
from tests.app.models import Label, Memo, Project, Task, Topic

ACME, GLOBEX = "acme", "globex"
SECRET = "globex-secret"


@dataclass(frozen=True)
class Rows:
    """One row of each kind for each tenant; ``shared`` are SYSTEM's."""

    topic: Topic
    own_project: Project
    own: Task
    foreign_project: Project
    foreign: Task
    shared_project: Project
    shared: Task
    memo: Memo
    foreign_memo: Memo


def make_rows() -> Rows:
    """Make the rows: whoever reads as ACME must see ``own`` and ``shared``, never ``foreign``."""
    topic = Topic.objects.create(name="topic")
    made = {}
    for tenant, code in ((ACME, "acme-task"), (GLOBEX, SECRET), (None, "shared-task")):
        scope = tenant_scope(tenant) if tenant else system_scope("reference data")
        with scope:
            project = Project.objects.create(name=f"project of {tenant}", topic=topic)
            task = Task.objects.create(
                code=code, project=project, topic=topic, weight=1, due=timezone.now()
            )
            label = Label.objects.create(name=f"label of {tenant}")
            task.labels.add(label)
            task.topics.add(topic)
            memo = Memo.objects.create(
                code=f"memo {code}", task=task, project=project, weight=1, due=timezone.now()
            )
            made[tenant] = project, task, memo
    return Rows(
        topic, *made[ACME][:2], *made[GLOBEX][:2], *made[None][:2], made[ACME][2], made[GLOBEX][2]
    )


def stored(table: str, column: str, **where: Any) -> list[object]:
    """What stands in a table, seen past all scopes."""
    quote = connection.ops.quote_name
    sql = f"SELECT {quote(column)} FROM {quote(table)}"  # noqa: S608  (names of the test's own)
    if where:
        sql += " WHERE " + " AND ".join(f"{quote(name)} = %s" for name in where)
    with connection.cursor() as cursor:
        cursor.execute(f"{sql} ORDER BY 1", [*where.values()])
        return [row[0] for row in cursor.fetchall()]


@contextmanager
def acme() -> Iterator[None]:
    """The scope of the tenant whose eyes the tests look through."""
    with tenant_scope(ACME):
        yield
