"""What the policies let through, to SQL that nobody has filtered."""

from __future__ import annotations

from io import StringIO
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import ProgrammingError, connections, transaction

from kumiko_django import system_scope, tenant_scope
from kumiko_django.exceptions import DefinitionError, ScopeError
from kumiko_django.tenancy.cross_tenant import reading_all_of
from kumiko_django.tenancy.lifting import Lease, Lifted, lifted, reading_all
from kumiko_django.tenancy.operations import EnableRowLevelSecurity
from tests.app.models import Epic, Label, Meter, Task
from tests.integration.policies.conftest import OWNER, ROLE, bare, codes, own

pytestmark = pytest.mark.once


def test_a_raw_select_without_the_wrapper_returns_nothing(policed: Any) -> None:
    """Nothing carried, nothing seen: neither tenants' rows nor those of SYSTEM."""
    with bare() as connection:
        for table in ("testapp_task", "testapp_task_labels", "testapp_epic", "testapp_project"):
            assert connection.execute(f"TABLE {table}").fetchall() == []
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
            connection.execute("INSERT INTO testapp_label (name, tenant_id) VALUES ('x', 'acme')")
        connection.execute("INSERT INTO testapp_topic (name) VALUES ('a plain table')")
    with bare(OWNER) as connection:
        assert len(connection.execute("SELECT * FROM testapp_task").fetchall()) == 6


def test_raw_sql_sees_the_rows_of_the_scope(policed: Any) -> None:
    """P106, user-needs 23: a cursor of Django's, unfiltered, reads own rows and SYSTEM's."""
    for tenant in ("acme", "globex"):
        with tenant_scope(tenant):
            assert codes() == own(tenant)
            assert codes("testapp_label", "name") == {f"{tenant}-label", "None-label"}
            assert len(codes("testapp_task_labels", "id")) == 2
            assert codes("testapp_epic", "goal") == {f"{tenant}-goal", "None-goal"}
    with system_scope("reference data"):
        assert codes() == {"None-task", "None-epic"}
    assert codes() == set()


def test_the_orm_works_under_policies(policed: Any) -> None:
    """Add, change, relate and delete, each for the tenant's own rows."""
    with tenant_scope("acme"):
        task = Task.objects.using(ROLE).create(code="new")
        task.labels.add(Label.objects.using(ROLE).get(name="acme-label"))
        epic = Epic.objects.using(ROLE).create(code="big", goal="much")
        Epic.objects.using(ROLE).filter(pk=epic.pk).update(goal="more", weight=2)
        assert Task.objects.using(ROLE).filter(labels__name="acme-label").count() == 2
        assert codes() == own("acme") | {"new", "big"}
        epic.delete()
        task.delete()
        assert codes() == own("acme")
    with system_scope("reference data"):
        Task.objects.using(ROLE).create(code="for all").delete()


def test_raw_sql_writes_own_rows_only(policed: Any) -> None:
    """Another's rows and SYSTEM's are neither changed, deleted, taken nor made."""
    with tenant_scope("acme"), policed.cursor() as cursor:
        cursor.execute("UPDATE testapp_task SET weight = 7")
        assert cursor.rowcount == 2
        cursor.execute("DELETE FROM testapp_task_labels")
        assert cursor.rowcount == 1
        for sql in (
            "INSERT INTO testapp_label (name, tenant_id) VALUES ('x', 'globex')",
            "INSERT INTO testapp_label (name, tenant_id) VALUES ('x', NULL)",
            "UPDATE testapp_label SET tenant_id = 'globex'",
            "UPDATE testapp_label SET tenant_id = NULL",
            "INSERT INTO testapp_task_labels (task_id, label_id) "
            "SELECT t.id, l.id FROM testapp_task t, testapp_label l "
            "WHERE t.code = 'None-task' AND l.name = 'None-label'",
        ):
            with pytest.raises(ProgrammingError, match="row-level security"):
                cursor.execute(sql)
    with bare(OWNER) as connection:
        changed = connection.execute("SELECT tenant_id, weight FROM testapp_task").fetchall()
        assert {row for row in changed if row[1]} == {("acme", 7)}
        labels = connection.execute("SELECT tenant_id, name FROM testapp_label").fetchall()
        assert {(tenant, f"{tenant}-label") for tenant in ("acme", "globex", None)} == set(labels)


def test_a_number_has_one_way_to_be_written(policed: Any) -> None:
    """Tenants "7" and "07" are two, though their column has numbers."""
    with tenant_scope("7"):
        Meter.objects.using(ROLE).create(reading=1)
        assert codes("testapp_meter", "reading") == {"1"}
    with tenant_scope("07"):
        assert codes("testapp_meter", "reading") == set()
    with system_scope("reference data"):
        assert codes("testapp_meter", "reading") == set()


def test_what_is_lifted_is_lifted_for_its_table_and_block(policed: Any) -> None:
    """Reads of one model, SYSTEM's rows for writing, and raw SQL, each by a word of its own."""
    with tenant_scope("acme"), policed.cursor() as cursor:
        with reading_all(Task):
            assert {"globex-task", "acme-task"} < codes()
            assert codes("testapp_label", "name") == {"acme-label", "None-label"}
            cursor.execute("UPDATE testapp_task SET weight = 1")
            assert cursor.rowcount == 2
        assert codes() == own("acme")
        for rules, written in ((Lifted(global_writes=True), 2), (Lifted(unsafe_raw=True), 3)):
            token = lifted.set(rules)
            cursor.execute("UPDATE testapp_label SET name = name")
            assert cursor.rowcount == written
            lifted.reset(token)
        cursor.execute("UPDATE testapp_label SET name = name")
        assert cursor.rowcount == 1


def test_a_query_across_tenants_is_wide_by_itself(policed: Any) -> None:
    """B149: the policies are told what stands on the query, and of no other query."""
    with tenant_scope("acme"):
        lease = Lease("acme")
        tasks = reading_all_of(Task, (), lease).using(ROLE)
        assert {task.code for task in tasks} == own("acme") | own("globex")
        assert tasks.count() == 6
        assert codes() == own("acme")
        lease.end()


def test_sql_cannot_set_what_the_scope_sets(policed: Any) -> None:
    """Neither the setting's name in a statement, nor what a statement resets, is left standing."""
    with tenant_scope("acme"), policed.cursor() as cursor:
        for sql in ("SET kumiko.tenant = 'globex'", "SELECT set_config('Kumiko.Tenant', 'x', 1)"):
            with pytest.raises(ScopeError, match="only the scope sets"):
                cursor.execute(sql)
        for sql in ("RESET ALL", "DISCARD ALL"):
            cursor.execute(sql)
            assert codes() == own("acme")
        cursor.execute("SELECT set_config('kumiko' || '.tenant', 'globex', false)")
        assert codes() == own("acme")


def test_the_operation_is_reversible_and_says_what_is_wrong(policed: Any) -> None:
    """Backwards takes all away, forwards brings it back; a plain model is refused."""
    from django.apps import apps
    from django.db.migrations.state import ProjectState

    state, empty = ProjectState.from_apps(apps), ProjectState()
    operation = EnableRowLevelSecurity("testapp.Label")
    owner = connections[OWNER]
    with owner.schema_editor() as editor:
        operation.database_backwards("testapp", editor, state, state)
    assert len(codes("testapp_label", "name")) == 3
    with owner.schema_editor() as editor:
        operation.database_forwards("testapp", editor, state, state)
    assert codes("testapp_label", "name") == set()
    assert operation.deconstruct() == ("EnableRowLevelSecurity", ["testapp.Label"], {})
    for label, where, told in (
        ("testapp.Topic", state, "belong to no tenant"),
        ("testapp.Nothing", state, "Nothing"),
        ("testapp.Label", empty, "not there yet"),
    ):
        with owner.schema_editor() as editor, pytest.raises(DefinitionError, match=told):
            EnableRowLevelSecurity(label).database_forwards("testapp", editor, where, where)


def test_the_command_makes_compares_and_removes(policed: Any) -> None:
    """``tenantpolicies`` finds the tables itself, and tells what is not as it should be."""

    def run(*arguments: str) -> str:
        out = StringIO()
        call_command("tenantpolicies", *arguments, database=OWNER, stdout=out)
        return out.getvalue()

    labels = ["testapp.Label", "testapp.Task"]
    assert "All 2 tables" in run(*labels, "--check")
    assert "CREATE POLICY kumiko_read" in run(*labels, "--sql")
    with transaction.atomic(using=OWNER):
        with connections[OWNER].cursor() as cursor:
            cursor.execute("CREATE POLICY mine ON testapp_task USING (true)")
            cursor.execute("ALTER TABLE testapp_label NO FORCE ROW LEVEL SECURITY")
        with pytest.raises(CommandError, match="2 of 2"):
            run(*labels, "--check")
        transaction.set_rollback(True, using=OWNER)
    run("testapp.Label", "--remove")
    with pytest.raises(CommandError, match="1 of 2"):
        run(*labels, "--check")
    assert "1 tables are under policies" in run("testapp.Label")
    assert "All 2 tables" in run(*labels, "--check")
    with pytest.raises(CommandError, match="belong to no tenant"):
        run("testapp.Topic")
