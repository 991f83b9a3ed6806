"""Queries that Django writes in unusual ways: they give the right rows, and no others."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import Case, Count, Exists, F, OuterRef, Q, Subquery, Sum, Value, When, Window
from django.db.models.functions import Rank

from kumiko_django import ScopeError, tenant_scope
from tests.app.models import Duty, Epic, Label, Memo, Person, Project, Task, Topic
from tests.unit.tenancy.rows import ACME, GLOBEX, SECRET, Rows, acme, stored

pytestmark = pytest.mark.django_db


def codes(queryset: Any) -> list[str]:
    return sorted(row.code for row in queryset)


def test_locks_name_their_tables(rows: Rows) -> None:
    tasks = Task.objects.select_related("project").select_for_update()
    if connection.features.has_select_for_update_of:
        tasks = Task.objects.filter(project__isnull=False).select_related("project")
        tasks = tasks.select_for_update(of=("self", "project"), skip_locked=True)
    with acme(), transaction.atomic():
        assert codes(tasks) == ["acme-task", "shared-task"]


def test_distinct_and_order_by_other_tables(rows: Rows) -> None:
    by_topic = Task.objects.order_by("project__topic__name", "code")
    if connection.features.can_distinct_on_fields:
        by_topic = by_topic.distinct("project__topic__name")
        with acme():
            assert codes(by_topic.all()) == ["acme-task"]
        with tenant_scope(GLOBEX):
            assert codes(by_topic.all()) == [SECRET]
    with acme():
        assert codes(Task.objects.order_by("-memos__code").distinct()) == [
            "acme-task",
            "shared-task",
        ]


def test_groups_and_sums_count_what_is_seen(rows: Rows) -> None:
    with acme():
        by_tenant = Task.objects.values("tenant_id").annotate(n=Count("pk")).order_by("n")
        assert {row["tenant_id"] for row in by_tenant} == {ACME, None}
        assert Topic.objects.aggregate(n=Sum("tasks__weight"))["n"] == 2
        assert Topic.objects.annotate(n=Count("tasks")).filter(n__gte=3).count() == 0
        assert Topic.objects.annotate(n=Count("tasks")).filter(n=2).update(name="two") == 1
        assert Task.objects.values("weight").union(Task.objects.values("weight")).count() == 1
        assert Task.objects.order_by("code")[:1].aggregate(n=Count("pk"))["n"] == 1
        ranked = Task.objects.annotate(rank=Window(Rank(), order_by="code"))
        assert [task.code for task in ranked.filter(rank=1)] == ["acme-task"]


def test_subqueries_inside_and_out(rows: Rows) -> None:
    with acme():
        query: Any = Task.objects.values("pk").query
        assert codes(Task.objects.filter(pk__in=query)) == [
            "acme-task",
            "shared-task",
        ]
        remembered = Task.objects.annotate(m=Exists(Memo.objects.filter(task=OuterRef("pk"))))
        assert codes(remembered.filter(m=True)) == ["acme-task", "shared-task"]
        nested = Topic.objects.filter(
            Exists(Task.objects.filter(Exists(Label.objects.filter(tasks=OuterRef("pk")))))
        )
        assert nested.count() == 1
        Task.objects.filter(pk=rows.own.pk).update(
            weight=Case(When(code="acme-task", then=Value(4)), default=F("weight"))
        )
        Memo.objects.filter(pk=rows.memo.pk).update(
            code=Subquery(Task.objects.filter(pk=OuterRef("task_id")).values("code")[:1])
        )
        assert Memo.objects.get(pk=rows.memo.pk).code == "acme-task"
        assert Task.objects.in_bulk(["acme-task", SECRET], field_name="code").keys() == {
            "acme-task"
        }


def test_deletes_and_updates_over_relations(rows: Rows) -> None:
    with acme():
        seen = Task.objects.filter(labels__in=Label.objects.filter(name__contains="label"))
        assert seen.update(weight=6) == 1
        assert Task.objects.exclude(labels__name="nothing").filter(weight=6).count() == 1
        assert seen.delete()[1]["testapp.Task"] == 1
    assert stored("testapp_task", "code") == [SECRET, "shared-task"]


def test_both_tables_of_a_model_are_written(rows: Rows) -> None:
    with acme():
        epic = Epic.objects.create(code="epic", goal="a", project=rows.own_project)
        epic.goal, epic.weight = "b", 5
        epic.save()
        assert Epic.objects.bulk_update([epic], ["goal", "weight"]) == 1
        assert Epic.objects.filter(weight=5, goal="b").update(goal="c", weight=6) == 1
        assert Epic.objects.select_related("project").get().project == rows.own_project
        assert Task.objects.get(code="epic").epic.goal == "c"
        assert [task.epic.goal for task in Task.objects.filter(epic__goal="c")] == ["c"]
        with pytest.raises(ScopeError), transaction.atomic():
            Epic.objects.filter(pk=epic.pk).update(goal="d", tenant_id=GLOBEX)
        with pytest.raises(ScopeError, match="without a filter"), transaction.atomic():
            Epic.objects.update(weight=1)
        with pytest.raises(ScopeError), transaction.atomic():
            Epic.objects.filter(pk=epic.pk).update(task_ptr=rows.foreign)


def test_through_models_with_columns_of_their_own(rows: Rows) -> None:
    person = Person.objects.create(name="p")
    with acme():
        person.tasks.add(rows.own, through_defaults={"role": "a"})
        assert Duty.objects.select_related("task__project").get().task == rows.own
        assert Duty.objects.filter(role="a").update(role="c") == 1
        with pytest.raises(ScopeError), transaction.atomic():
            Duty.objects.filter(role="c").update(task=rows.foreign)
        with pytest.raises(ScopeError), transaction.atomic():
            Duty.objects.create(person=person, task=rows.shared)  # SYSTEM's, as its only end
        label, _ = rows.own.labels.get_or_create(name="made")
        assert rows.own.labels.update_or_create(name="made")[0] == label
        assert stored("testapp_label", "tenant_id", name="made") == [ACME]
    with tenant_scope(GLOBEX):
        assert Duty.objects.filter(role="c").delete()[0] == 0


def test_rows_that_are_added_together_may_point_to_one_another(rows: Rows) -> None:
    with acme():
        Task.objects.bulk_create(
            [Task(pk=9001, code="parent"), Task(pk=9002, code="child", parent_id=9001)]
        )
        with pytest.raises(ScopeError), transaction.atomic():
            Task.objects.bulk_create(
                [Task(pk=rows.foreign.pk, code="x"), Task(code="y", parent_id=rows.foreign.pk)],
                ignore_conflicts=True,
            )
    assert stored("testapp_task", "parent_id", code="child") == [9001]


def test_conditions_that_match_everything_or_nothing(rows: Rows) -> None:
    with acme():
        assert codes(Task.objects.filter(~Q(pk__in=[]))) == ["acme-task", "shared-task"]
        assert list(Task.objects.filter(pk__in=[])) == []
        assert list(Task.objects.none() | Task.objects.filter(code=SECRET)) == []
        assert Task.objects.filter(Q(pk__in=[]) | Q(code=SECRET)).count() == 0
        assert Task.objects.filter(pk__in=[]).update(weight=1) == 0
        assert Task.objects.filter(pk__in=[]).delete()[0] == 0
        assert Project.objects.filter(Q(name="a") ^ Q(pk__gt=0)).count() == 2
