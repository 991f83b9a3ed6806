"""What a scope reads, tried as a careless and as a hostile developer would (design 7)."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import pytest
from django.core import serializers
from django.db import connection, models
from django.db.models import (
    Avg,
    Case,
    Count,
    Exists,
    F,
    FilteredRelation,
    Max,
    OuterRef,
    Prefetch,
    Q,
    Subquery,
    Value,
    When,
    Window,
)
from django.db.models.expressions import RawSQL
from django.db.models.functions import RowNumber
from pytest_django import Settings

from kumiko_django import SYSTEM, ScopeError, system_scope, tenant_scope
from kumiko_django.tenancy.marks import pinned
from tests.app.models import Comment, Duty, Epic, Label, Memo, Person, Project, Task, Topic
from tests.unit.tenancy.rows import ACME, GLOBEX, SECRET, Rows, acme

pytestmark = pytest.mark.django_db


def codes(queryset: Any) -> list[str]:
    return sorted(row.code for row in queryset)


# --------------------------------------------------------------------------------- whose rows, when


def test_a_scope_reads_its_own_rows_and_those_of_system(rows: Rows) -> None:
    with acme():
        assert codes(Task.objects.all()) == ["acme-task", "shared-task"]
    with system_scope("reference data"):
        assert codes(Task.objects.all()) == ["shared-task"]
    with tenant_scope("initech"):
        assert codes(Task.objects.all()) == ["shared-task"]


def test_without_tenancy_everything_is_systems_and_no_scope_is_needed(settings: Settings) -> None:
    settings.KUMIKO = {**settings.KUMIKO, "TENANTS": None}
    task = Task.objects.create(code="a")

    assert (task.tenant_id, codes(Task.objects.filter(code="a"))) == (None, ["a"])
    fetched = Task.objects.all()
    assert len(fetched) == 2
    with system_scope("look"):
        assert len(fetched) == 2, "it is the same tenant"
    assert Task.objects.filter(pk=task.pk).update(weight=3) == 1
    assert task.delete()[0] == 1


def test_a_value_may_stand_for_system(rows: Rows, settings: Settings) -> None:
    settings.KUMIKO = {**settings.KUMIKO, "SYSTEM_TENANT_VALUE": "everybody"}
    with system_scope("reference data"):
        shared = Task.objects.create(code="shared")
    with acme():
        own = Task.objects.create(code="own")
        assert codes(Task.objects.all()) == ["acme-task", "own", "shared"]
        assert Task.objects.filter(pk__in=[own.pk, shared.pk]).update(weight=2) == 1
    assert (shared.tenant_id, own.tenant_id) == ("everybody", ACME)


def test_rows_are_filtered_by_the_scope_in_which_a_query_runs(rows: Rows) -> None:
    with acme():
        made = Task.objects.order_by("code")
    with tenant_scope(GLOBEX):
        assert codes(made) == [SECRET, "shared-task"]


def test_fetched_rows_are_not_read_in_another_scope(rows: Rows) -> None:
    """A queryset keeps what it has fetched; so it is pinned to that scope."""
    with acme():
        fetched = Task.objects.all()
        assert len(fetched) == 2
        pickled = pickle.dumps(fetched)
        project = Project.objects.prefetch_related("tasks").get(tenant_id=ACME)
        assert len(project.tasks.all()) == 1
    with tenant_scope(GLOBEX):
        reads: list[Callable[[], Any]] = [
            lambda: list(fetched),
            lambda: len(fetched),
            lambda: fetched.count(),
            lambda: fetched[0],
            lambda: bool(fetched),
            lambda: list(copy.copy(fetched)),
            lambda: list(pickle.loads(pickled)),  # noqa: S301
            lambda: list(project.tasks.all()),
        ]
        for read in reads:
            with pytest.raises(ScopeError, match="were fetched in the scope of 'acme'"):
                read()
        assert codes(fetched.all()) == [SECRET, "shared-task"]
        assert codes(copy.deepcopy(fetched)) == [SECRET, "shared-task"]
    with pytest.raises(ScopeError, match="were fetched in"):
        list(fetched)


def test_a_pickled_query_asks_in_the_scope_in_which_it_is_loaded(rows: Rows) -> None:
    with acme():
        data = pickle.dumps(Task.objects.filter(weight=1).query)
    with tenant_scope(GLOBEX):
        restored: Any = Task.objects.all()
        restored.query = pickle.loads(data)  # noqa: S301
        assert codes(restored) == [SECRET, "shared-task"]


def test_a_pinned_query_is_refused_in_another_scope(rows: Rows) -> None:
    with acme():
        tasks = pinned(Task.objects.all())
        assert codes(tasks.filter(weight=1)) == ["acme-task", "shared-task"]
    with tenant_scope(GLOBEX):
        for run in (
            lambda: list(tasks),
            lambda: tasks.count(),
            lambda: tasks.filter(weight=1).update(weight=2),
            lambda: tasks.filter(weight=1).delete(),
            lambda: list(Task.objects.filter(pk__in=tasks)),
        ):
            with pytest.raises(ScopeError, match="acme"):
                run()
    with pytest.raises(ScopeError, match="pinned outside of any scope"):
        pinned(Task.objects.all())


def test_a_thread_has_no_scope_unless_it_copies_the_context(rows: Rows) -> None:
    """A test's transaction is not another thread's: only what the SQL would be is looked at."""
    told: list[object] = []

    def ask() -> None:
        try:
            told.append(str(Task.objects.all().query))
        except ScopeError as error:
            told.append(error)

    with acme():
        context = copy_context()
        for target in (ask, lambda: context.run(ask)):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()

    assert isinstance(told[0], ScopeError)
    assert ACME in str(told[1])


def test_the_refusal_names_model_operation_and_fix(rows: Rows) -> None:
    with pytest.raises(ScopeError, match=r"testapp\.Task is read outside.*tenant_scope\(tenant_id"):
        list(Task.objects.all())
    with pytest.raises(ScopeError, match=r"testapp\.Task is changed outside"):
        Task.objects.filter(pk=1).update(weight=1)
    with pytest.raises(ScopeError, match=r"testapp\.Task is deleted from outside"):
        Task(pk=1).delete()
    with pytest.raises(ScopeError, match=r"testapp\.Task is added to outside"):
        Task.objects.create(code="x")


# --------------------------------------------------------------------------- joins, from everywhere

ONLY_OWN: dict[str, Callable[[Rows], Any]] = {
    "filter over a foreign key": lambda r: Memo.objects.filter(task__code__contains="task"),
    "filter over two": lambda r: Memo.objects.filter(project__tasks__code=SECRET),
    "filter over many to many": lambda r: Topic.objects.filter(listed__code=SECRET),
    "filter that trims its last join": lambda r: Label.objects.filter(tasks=r.foreign.pk),
    "select_related": lambda r: Memo.objects.select_related("project"),
    "select_related, nullable": lambda r: [m.task for m in Memo.objects.select_related("task")],
    "values": lambda r: Memo.objects.values("task__code", "project__name"),
    "values_list, nested": lambda r: Memo.objects.values_list("task__project__name"),
    "annotate": lambda r: Memo.objects.annotate(x=F("task__code")).values_list("x"),
    "annotate Max": lambda r: Topic.objects.annotate(x=Max("tasks__code")).values("x"),
    "aggregate": lambda r: Memo.objects.aggregate(x=Max("task__code")),
    "Case over a join": lambda r: Memo.objects.annotate(
        x=Case(When(task__weight=1, then=F("task__code")), default=Value(""))
    ).values("x"),
    "FilteredRelation": lambda r: Topic.objects.annotate(
        t=FilteredRelation("tasks", condition=Q(tasks__weight=1))
    ).values("t__code"),
    "Subquery": lambda r: Memo.objects.annotate(
        x=Subquery(Task.objects.filter(pk=OuterRef("task_id")).values("code")[:1])
    ).values("x"),
    "Subquery of a plain manager": lambda r: Topic.objects.annotate(
        x=Subquery(Task._base_manager.order_by("-code").values("code")[:1])
    ).values("x"),
    "Exists": lambda r: Topic.objects.filter(
        Exists(Task.objects.filter(topic=OuterRef("pk"), code=SECRET))
    ),
    "in": lambda r: Memo.objects.filter(task__in=Task.open.filter(code=SECRET)),
    "window": lambda r: Task.objects.annotate(x=Window(RowNumber(), order_by="code")).filter(
        x__lte=9
    ),
    "distinct on the order of another table": lambda r: Task.objects.order_by(
        "project__name"
    ).distinct(),
    "or of querysets": lambda r: (
        Task.objects.filter(pk=r.own.pk) | Task.objects.filter(pk=r.foreign.pk)
    ),
    "and of querysets": lambda r: Task.objects.all() & Task.objects.filter(code=SECRET),
    "or of conditions": lambda r: Task.objects.filter(Q(pk=r.foreign.pk) | Q(weight=1)),
    "union": lambda r: Task.objects.values("code").union(Memo.objects.values("task__code")),
    "union of plain querysets": lambda r: models.QuerySet(Task).union(models.QuerySet(Task)),
    "a condition on the tenant": lambda r: Task.objects.filter(tenant_id=GLOBEX),
    "an or with the tenant": lambda r: Task.objects.filter(Q(tenant_id=GLOBEX) | Q(weight=1)),
    "prefetch": lambda r: [list(t.tasks.all()) for t in Topic.objects.prefetch_related("tasks")],
    "prefetch with a plain queryset": lambda r: [
        t.found
        for t in Topic.objects.prefetch_related(
            Prefetch("tasks", queryset=models.QuerySet(Task), to_attr="found")
        )
    ],
    "prefetch many to many": lambda r: [
        list(t.listed.all()) for t in Topic.objects.prefetch_related("listed")
    ],
    "through table": lambda r: Task.labels.through.objects.filter(task=r.foreign.pk),
    "through table of a plain model": lambda r: Task.topics.through.objects.filter(
        task=r.foreign.pk
    ),
    "through table, counted": lambda r: [SECRET] * (Task.labels.through.objects.count() - 2),
    "dates": lambda r: Memo.objects.filter(task__code=SECRET).dates("due", "year"),
    "serialized": lambda r: serializers.serialize("json", Task.objects.all()),
    "reverse, from the foreign row itself": lambda r: r.foreign_project.tasks.filter(
        weight=1
    ).exclude(tenant_id=None),
    "a related row": lambda r: [
        m.task_id and str(m.pk) for m in r.foreign.memos.filter(project__name__contains="globex")
    ],
}


@pytest.mark.parametrize("name", ONLY_OWN)
def test_no_path_leads_to_another_tenants_row(rows: Rows, name: str) -> None:
    with acme():
        seen = str(list(ONLY_OWN[name](rows)) if name != "aggregate" else ONLY_OWN[name](rows))
    assert SECRET not in seen
    assert GLOBEX not in seen


@pytest.mark.parametrize("name", ONLY_OWN)
def test_no_path_works_without_a_scope(rows: Rows, name: str) -> None:
    with pytest.raises(ScopeError, match="outside of any scope"):
        str(list(ONLY_OWN[name](rows)))


def test_what_is_not_seen_does_not_take_plain_rows_with_it(rows: Rows) -> None:
    """The condition of an outer join stands in its ON: the plain row stays."""
    memo = Memo.objects.create(code="both", task=rows.foreign, project=rows.own_project)
    with acme():
        joined = Memo.objects.select_related("task").get(pk=memo.pk)
        assert (joined.task, joined.task_id) == (None, rows.foreign.pk)
        assert Memo.objects.filter(task__code__isnull=True, pk=memo.pk).exists()
        assert Topic.objects.annotate(n=Count("tasks")).get().n == 2
        assert Topic.objects.annotate(n=Avg("tasks__weight")).get().n == 1
        lonely = Topic.objects.create(name="lonely")
        Task._base_manager.filter(pk=rows.own.pk).update(topic=None)
        assert Topic.objects.filter(tasks__code="acme-task").count() == 0
        assert lonely in Topic.objects.filter(tasks__isnull=True)
        with pytest.raises(Task.DoesNotExist):
            Memo.objects.get(pk=memo.pk).task  # noqa: B018


def test_exclude_over_many_rows_does_not_tell_of_foreign_ones(rows: Rows) -> None:
    """Its subquery has the condition too: what only a foreign row excludes is not excluded."""
    memo = Memo.objects.create(code="both", project=rows.own_project)
    with tenant_scope(GLOBEX):
        memo.tasks.add(rows.foreign)
    with acme():
        assert memo in Memo.objects.exclude(tasks__code=SECRET)
        assert rows.topic in Topic.objects.exclude(tasks__code=SECRET)
        assert rows.topic in Topic.objects.exclude(listed__code=SECRET)
        assert rows.topic not in Topic.objects.exclude(tasks__code="acme-task")


def test_the_own_row_is_found_by_the_same_paths(rows: Rows) -> None:
    with acme():
        assert Memo.objects.filter(task__code="acme-task").get() == rows.memo
        assert Topic.objects.filter(listed__code="acme-task").exists()
        assert Label.objects.filter(tasks=rows.own.pk).count() == 1
        assert {t.code for t in rows.topic.listed.all()} == {"acme-task", "shared-task"}
        assert [label.name for label in rows.own.labels.all()] == ["label of acme"]
        assert rows.own.memos.get() == rows.memo
        assert codes(Task.objects.filter(Q(labels__name__contains="acme"))) == ["acme-task"]


def test_single_rows_are_found_by_key_only_in_their_scope(rows: Rows) -> None:
    with acme():
        for reach in (
            lambda: Task.objects.get(pk=rows.foreign.pk),
            lambda: rows.foreign.refresh_from_db(),
            lambda: Memo.objects.get(pk=rows.foreign_memo.pk).task,
            lambda: Task.objects.only("pk").get(pk=rows.foreign.pk).code,
            lambda: Task.objects.latest("-code") == rows.own and Task.objects.get(code=SECRET),
        ):
            with pytest.raises(Task.DoesNotExist):
                reach()
        deferred = Task.objects.defer("code").get(pk=rows.own.pk)
    with tenant_scope(GLOBEX), pytest.raises(Task.DoesNotExist):
        deferred.code  # noqa: B018


def test_generic_relations_lead_to_own_rows_only(rows: Rows) -> None:
    with tenant_scope(GLOBEX):
        Comment.objects.create(text=SECRET, about=rows.foreign_project)
    with acme():
        own = Comment.objects.create(text="ours", about=rows.foreign_project)
        assert own.about is not None
        assert Comment.objects.get(pk=own.pk).about is None
        assert [c.text for c in rows.foreign_project.comments.all()] == ["ours"]
        assert [c.about for c in Comment.objects.prefetch_related("about")] == [None]


def test_a_through_model_of_ones_own_follows_its_rows(rows: Rows) -> None:
    person = Person.objects.create(name="p")
    for task, tenant in ((rows.own, ACME), (rows.foreign, GLOBEX)):
        with tenant_scope(tenant):
            Duty.objects.create(person=person, task=task, role=tenant)
    with acme():
        assert [duty.role for duty in Duty.objects.all()] == [ACME]
        assert [task.code for task in person.tasks.all()] == ["acme-task"]
        assert Person.objects.filter(duty__role=GLOBEX).count() == 0
    with pytest.raises(ScopeError, match=r"testapp\.Duty is read"):
        list(Duty.objects.all())


def test_the_second_table_of_a_model_is_guarded_by_the_first(rows: Rows) -> None:
    with tenant_scope(GLOBEX):
        epic = Epic.objects.create(code="epic", goal=SECRET)
    with acme():
        assert list(Epic.objects.values("goal")) == []
        assert Epic.objects.filter(goal=SECRET).count() == 0
        assert Epic.objects.filter(pk=epic.pk).update(goal="x") == 0
        assert not hasattr(Task.objects.first(), "epic")
    with tenant_scope(GLOBEX):
        assert Epic.objects.values_list("goal", flat=True).get() == SECRET
        assert Epic.objects.filter(pk=epic.pk).update(goal="x", weight=4) == 1


# ------------------------------------------------------------------------------ round the querysets


def test_every_compiler_has_the_rules(rows: Rows) -> None:
    """However SQL is got at: by the query, by a compiler, as text."""
    query = Task.objects.all().query
    ways: list[Callable[[], Any]] = [
        lambda: str(query),
        lambda: query.sql_with_params(),
        lambda: query.get_compiler("default").as_sql(),
        lambda: connection.ops.compiler("SQLCompiler")(query, connection, "default").as_sql(),
        lambda: models.sql.compiler.SQLCompiler(query, connection, "default").as_sql(),
        lambda: list(query.get_compiler("default").results_iter()),
        lambda: query.get_compiler("default").has_results(),
    ]
    for way in ways:
        with pytest.raises(ScopeError, match="outside of any scope"):
            way()
        with acme():
            assert "globex" not in str(way())


RAW: dict[str, Callable[[Rows], Any]] = {
    "extra where": lambda r: Task.objects.extra(where=["1=1) OR (1=1"]),
    "extra where, joined": lambda r: Memo.objects.filter(project__name__gt="").extra(
        where=["1=1) OR (1=1"]
    ),
    "extra select": lambda r: Task.objects.extra(select={"x": "(SELECT max(code) FROM a)"}),
    "extra order": lambda r: Task.objects.extra(order_by=["testapp_task.code OR 1=1"]),
    "extra tables": lambda r: Topic.objects.extra(tables=["testapp_task"]),
    "extra tables, quoted": lambda r: Topic.objects.extra(tables=['"testapp_task"']),
    "extra tables, in capitals": lambda r: Topic.objects.extra(tables=["TESTAPP_TASK"]),
    "RawSQL annotation": lambda r: Task.objects.annotate(x=RawSQL("(SELECT 1)", [])),
    "RawSQL filter": lambda r: Task.objects.filter(pk__in=RawSQL("SELECT 1) OR (1=1", [])),
    "RawSQL order": lambda r: Task.objects.order_by(RawSQL("(SELECT 1)", [])),
    "RawSQL, joined later": lambda r: Memo.objects.annotate(
        x=RawSQL("(SELECT 1)", [])
    ).select_related("task"),
    "RawSQL of a plain model": lambda r: Topic.objects.annotate(
        x=RawSQL("(SELECT max(code) FROM testapp_task)", [])
    ),
    "extra of a plain model": lambda r: Topic.objects.extra(
        where=['EXISTS (SELECT 1 FROM "TESTAPP_TASK_LABELS")']
    ),
    "raw of a plain model": lambda r: Topic.objects.raw("SELECT * FROM testapp_task t"),
    "raw": lambda r: Task.objects.raw("SELECT * FROM testapp_task"),
    "raw of _base_manager": lambda r: Task._base_manager.raw("SELECT * FROM testapp_task"),
    "raw of a manager without tenants": lambda r: Task.open.raw("SELECT * FROM testapp_task"),
}


@pytest.mark.parametrize("name", RAW)
def test_sql_of_ones_own_is_refused(rows: Rows, name: str) -> None:
    """B150: without the grant ``unsafe_raw``, in every scope."""
    with acme(), pytest.raises(ScopeError, match="SQL of your own"):
        list(RAW[name](rows))
    with system_scope("look"), pytest.raises(ScopeError, match="SQL of your own"):
        list(RAW[name](rows))


def test_a_column_by_name_is_no_sql_of_ones_own(rows: Rows) -> None:
    with acme():
        assert [t.x for t in Task.objects.filter(tenant_id=ACME).extra(select={"x": "code"})] == [
            "acme-task"
        ]


def test_system_is_no_tenant_that_could_be_named(rows: Rows) -> None:
    with pytest.raises(ScopeError, match="SYSTEM is not a tenant"):
        tenant_scope(SYSTEM)
