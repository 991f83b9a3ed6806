"""Lifted rules, guards of writes, migrations, fixtures, and what we hold on to of Django."""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, models, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.models import Count, Q
from django.db.models.deletion import Collector
from django.db.models.expressions import RawSQL
from django.db.models.query import RawQuerySet
from django.db.models.sql.compiler import SQLCompiler
from django.test.utils import CaptureQueriesContext, isolate_apps

from kumiko_django import DefinitionError, ScopeError, TenantMixin, TenantModel, system_scope
from kumiko_django import tenant_scope as scope_of
from kumiko_django.tenancy import install, writes
from kumiko_django.tenancy.compilers import ReadRules
from kumiko_django.tenancy.lifting import Lifted, lifted
from tests.app.models import Memo, Project, Task, Topic
from tests.unit.tenancy.rows import ACME, GLOBEX, SECRET, Rows, acme, stored

pytestmark = pytest.mark.django_db


@contextmanager
def lifting(**rules: Any) -> Iterator[None]:
    """What an escape hatch will do, which is not built here."""
    token = lifted.set(Lifted(**rules))
    try:
        yield
    finally:
        lifted.reset(token)


def codes(queryset: Any) -> list[str]:
    return sorted(row.code for row in queryset)


# ------------------------------------------------------------------------------------ lifted rules


def test_cross_tenant_reads_are_for_one_model(rows: Rows) -> None:
    """B149: and for reading."""
    with acme(), lifting(cross_tenant_reads=frozenset({Task})):
        assert codes(Task.objects.all()) == ["acme-task", SECRET, "shared-task"]
        assert codes(Memo.objects.filter(task__code=SECRET)) == [f"memo {SECRET}"]
        assert Project.objects.count() == 2
        assert Memo.objects.filter(task__project__name__contains=GLOBEX).count() == 0
        assert Task.objects.filter(weight=1).update(weight=2) == 1
        with pytest.raises(ScopeError, match="does not have"), transaction.atomic():
            Task.objects.create(code="x", parent=rows.foreign)
        with pytest.raises(ScopeError, match="be changed"):
            Task.objects.get(code=SECRET).save()
    with acme():
        assert codes(Task.objects.all()) == ["acme-task", "shared-task"]


def test_global_writes_reach_systems_rows_and_no_other_tenants(rows: Rows) -> None:
    """B150."""
    with acme(), lifting(global_writes=True):
        assert Task.objects.filter(weight=1).update(weight=2) == 2
        shared = Task.objects.get(code="shared-task")
        shared.weight = 3
        shared.save()
        assert Task.objects.create(code="new").tenant_id is None
        assert Task.objects.create(code="ours", tenant_id=ACME).tenant_id == ACME
        with pytest.raises(ScopeError):
            Task.objects.create(code="theirs", tenant_id=GLOBEX)
        with pytest.raises(ScopeError):
            rows.foreign.save()
    assert stored("testapp_task", "weight", code=SECRET) == [1]
    assert stored("testapp_task", "weight", code="shared-task") == [3]


def test_unsafe_raw_is_for_sql_of_ones_own(rows: Rows) -> None:
    """B150: where it ends, so does what was made in it."""
    with acme():
        with lifting(unsafe_raw=True):
            raw = Task.objects.raw("SELECT * FROM testapp_task")
            assert len(list(raw)) == 3
            again = Task.objects.raw("SELECT * FROM testapp_task")
            assert [t.x for t in Task.objects.annotate(x=RawSQL("(SELECT 7)", []))] == [7, 7]
            assert Topic.objects.extra(tables=["testapp_task"]).count() == 3
        with pytest.raises(ScopeError, match="SQL of your own"):
            list(again)


def test_nothing_is_lifted_without_a_scope(rows: Rows) -> None:
    with lifting(cross_tenant_reads=frozenset({Task}), global_writes=True, unsafe_raw=True):
        for query in (
            lambda: list(Task.objects.all()),
            lambda: list(Task.objects.raw("SELECT * FROM testapp_task")),
            lambda: Task.objects.filter(pk=1).update(weight=1),
        ):
            with pytest.raises(ScopeError, match="outside of any scope"):
                query()


# ----------------------------------------------------------------------------------- before_write

PATHS: dict[str, tuple[Callable[[Rows], Any], str, str, str]] = {
    "create": (lambda r: Task.objects.create(code="x"), "Task", "insert", "code"),
    "bulk_create": (lambda r: Task.objects.bulk_create([Task(code="x")]), "Task", "insert", "code"),
    "plain create": (lambda r: Topic.objects.create(name="x"), "Topic", "insert", "name"),
    "save": (lambda r: r.own.save(), "Task", "update", "code"),
    "save of a field": (lambda r: r.own.save(update_fields=["weight"]), "Task", "update", "weight"),
    "update": (lambda r: Task.objects.filter(pk=1).update(weight=1), "Task", "update", "weight"),
    "bulk_update": (
        lambda r: Task.objects.bulk_update([r.own], ["weight"]),
        "Task",
        "update",
        "weight",
    ),
    "plain update": (lambda r: Topic.objects.update(name="x"), "Topic", "update", "name"),
    "set null by a deletion": (
        lambda r: Task.objects.get(pk=r.own.pk).delete(),
        "Task",
        "update",
        "parent",
    ),
    "delete": (lambda r: Task.objects.filter(pk=r.own.pk).delete(), "Task", "delete", ""),
    "many to many": (
        lambda r: r.own.topics.add(Topic.objects.create(name="n")),
        "Task_topics",
        "insert",
        "topic",
    ),
    "clear": (lambda r: r.own.labels.clear(), "Task_labels", "delete", ""),
}


@pytest.mark.parametrize("name", PATHS)
def test_every_write_passes_one_function(
    rows: Rows, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B173: so that a gate on it has no hole; what it refuses is not written."""
    path, model, operation, field = PATHS[name]
    seen: list[tuple[str, str, list[str]]] = []

    def note(model: type[models.Model], fields: Any, operation: str, rows: Any) -> None:
        seen.append((model.__name__, operation, list(fields)))

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(writes, "guards", [note])
    with acme(), transaction.atomic():
        path(rows)
        transaction.set_rollback(True)
    assert any(
        (kind, done) == (model, operation) and (not field or field in fields)
        for kind, done, fields in seen
    ), seen
    writes.guards[:] = [refuse]
    with acme(), pytest.raises(PermissionError), transaction.atomic():
        path(rows)


# ------------------------------------------------------------------- migrations, fixtures, commands


def test_migrations_see_the_rows_of_all(rows: Rows) -> None:
    """Historical models are plain: a migration changes what all tenants have."""
    state = MigrationExecutor(connection).loader.project_state()
    historical: Any = state.apps.get_model("testapp", "Task")

    assert type(historical.objects) is models.Manager
    assert historical.objects.count() == 3
    assert historical.objects.update(weight=5) == 3
    assert historical.objects.create(code="new", tenant_id=GLOBEX).tenant_id == GLOBEX
    assert historical.objects.filter(code__startswith="acme").select_related("project").get()
    assert historical.objects.filter(code="new").delete()[0] == 1


def test_dumpdata_and_loaddata_work_for_one_scope(rows: Rows, tmp_path: Any) -> None:
    with pytest.raises(Exception, match="outside of any scope"):
        call_command("dumpdata", "testapp.project", stdout=io.StringIO())
    dump = tmp_path / "projects.json"
    with acme():
        Project.objects.create(name="second")
        with dump.open("w") as out:
            call_command("dumpdata", "testapp.project", stdout=out)
    text = dump.read_text()
    assert '"second"' in text
    assert GLOBEX not in text
    with scope_of(GLOBEX), pytest.raises(ScopeError), transaction.atomic():
        call_command("loaddata", str(dump), verbosity=0)
    with system_scope("reference data"):
        dump.write_text(text.replace('"acme"', "null"))
        with pytest.raises(Exception, match=r"UNIQUE|duplicate"), transaction.atomic():
            call_command("loaddata", str(dump), verbosity=0)


def test_validation_works_in_a_scope(rows: Rows) -> None:
    with acme():
        project = Project(name="project of acme", tenant_id=ACME)
        with pytest.raises(Exception, match="already exists"):
            project.full_clean(exclude=["topic"])
        project.name = "another"
        project.full_clean(exclude=["topic"])


def test_a_refused_write_in_a_transaction_rolls_it_back(rows: Rows) -> None:
    @transaction.atomic
    def both() -> None:
        Task.objects.create(code="x")
        rows.foreign.save()

    with acme(), pytest.raises(ScopeError):
        both()
    assert stored("testapp_task", "code", code="x") == []


# ------------------------------------------------------------------------------------ declarations


@isolate_apps("tests.app")
def test_a_tenant_model_says_what_its_column_is() -> None:
    with pytest.raises(DefinitionError, match="does not say which column holds its tenant"):
        type("Nothing", (TenantMixin,), {"__module__": "tests.app.models"})
    with pytest.raises(DefinitionError, match=r"names a field that is not there: .*[^.]\.$"):
        type(
            "Missing",
            (TenantMixin,),
            {"__module__": "tests.app.models", "Tenant": type("Tenant", (), {"field": "who"})},
        )
    with pytest.raises(DefinitionError, match="is a BooleanField; a tenant column is text"):
        type(
            "Odd",
            (TenantMixin,),
            {
                "__module__": "tests.app.models",
                "Tenant": type("Tenant", (), {"field": "who"}),
                "who": models.BooleanField(),
            },
        )


@isolate_apps("tests.app")
def test_a_plain_parent_with_a_table_is_refused() -> None:
    parent = type("Parent", (models.Model,), {"__module__": "tests.app.models"})
    with pytest.raises(DefinitionError, match="would belong to nobody"):
        type("Child", (parent, TenantModel), {"__module__": "tests.app.models"})


# ------------------------------------------------------------------------ what we hold on to, cost


def test_the_hooks_fit_the_installed_django() -> None:
    """Django's own methods are still what they were when we took hold of them."""
    original = inspect.signature(install._django_init)
    assert list(original.parameters) == ["self", "query", "connection", "using", "elide_empty"]
    collect = list(inspect.signature(install._django_collect).parameters)
    assert collect[:3] == ["self", "objs", "source"]
    assert SQLCompiler.__init__ is install._init
    assert Collector.collect is install._collect
    assert RawQuerySet.__init__ is install._raw_init
    install.install()
    assert SQLCompiler.__init__ is install._init, "twice is once"


@pytest.mark.parametrize(
    "name", ["SQLCompiler", "SQLInsertCompiler", "SQLUpdateCompiler", "SQLDeleteCompiler"]
)
def test_compilers_stay_what_they_are(name: str) -> None:
    base = connection.ops.compiler(name)
    compiler = base(Task.objects.all().query, connection, "default")
    assert isinstance(compiler, base)
    assert isinstance(compiler, ReadRules)


def test_a_scope_costs_no_queries(rows: Rows) -> None:
    with acme(), CaptureQueriesContext(connection) as queries:
        list(Task.objects.select_related("project").filter(labels__name="a"))
        Task.objects.filter(pk=rows.own.pk).update(weight=3)
        Topic.objects.annotate(n=Count("tasks", filter=Q(tasks__done=True))).count()
    assert len(queries) == 3


def test_a_foreign_key_to_a_tenants_row_costs_one_small_query(rows: Rows) -> None:
    with acme(), CaptureQueriesContext(connection) as queries:
        Task.objects.bulk_create([Task(code=f"{n}", project=rows.own_project) for n in range(50)])
    assert len([q for q in queries if q["sql"].startswith("SELECT")]) == 1
