"""Deletions that follow relations: the collector, through tables, rows that cannot be seen."""

from __future__ import annotations

import pytest
from django.contrib.admin.utils import NestedObjects
from django.db import models, transaction
from django.db.models.signals import pre_delete

from kumiko_django import ScopeError, system_scope, tenant_scope
from tests.app.models import Comment, Epic, Label, Memo, Project, Task, Topic
from tests.unit.tenancy.rows import ACME, GLOBEX, SECRET, Rows, acme, stored

pytestmark = pytest.mark.django_db


def test_a_row_takes_its_own_along(rows: Rows) -> None:
    with acme():
        child = Task.objects.create(code="child", parent=rows.own)
        rows.memo.delete()
        deleted = rows.own.delete()[1]
        child.refresh_from_db()
    assert deleted == {"testapp.Task_labels": 1, "testapp.Task_topics": 1, "testapp.Task": 1}
    assert child.parent_id is None
    assert stored("testapp_task", "code") == ["child", SECRET, "shared-task"]


def test_a_queryset_deletes_what_it_may_and_touches_nothing_of_the_rest(rows: Rows) -> None:
    """SYSTEM's rows are read but not written, so they are not collected, nor what hangs on them."""
    with acme():
        hanging = Task.objects.create(code="hanging", project=rows.shared_project)
        seen: list[object] = []
        pre_delete.connect(lambda **kw: seen.append(kw["instance"]), sender=Project, weak=False)
        try:
            Memo.objects.all().delete()
            Project.objects.filter(name__contains="project").delete()
        finally:
            pre_delete.receivers = [r for r in pre_delete.receivers if r[0][1] != id(Project)]
            pre_delete.sender_receivers_cache.clear()
        assert [str(project) for project in seen] == ["project of acme"]
        hanging.refresh_from_db()
    assert stored("testapp_project", "name") == ["project of None", "project of globex"]


def test_a_plain_row_to_which_other_tenants_point_stays(rows: Rows) -> None:
    """The collector cannot see these rows; without this they would dangle, or cascade."""
    with acme(), transaction.atomic():
        with pytest.raises(ScopeError, match="other tenants' rows of"), transaction.atomic():
            rows.topic.delete()
        with pytest.raises(ScopeError, match="other tenants' rows of"), transaction.atomic():
            Topic.objects.filter(pk=rows.topic.pk).delete()
        with pytest.raises(ScopeError, match="other tenants' rows of"), transaction.atomic():
            Topic.objects.all()._raw_delete("default")
    assert stored("testapp_topic", "name") == ["topic"]
    assert len(stored("testapp_task_topics", "id")) == 3


def test_a_plain_row_to_which_own_rows_point_goes_with_them(rows: Rows) -> None:
    with acme():
        topic = Topic.objects.create(name="ours")
        project = Project.objects.create(name="ours", topic=topic)
        Task.objects.filter(pk=rows.own.pk).update(topic=topic)
        rows.own.topics.add(topic)
        topic.delete()
        assert not Project.objects.filter(pk=project.pk).exists()
        assert Task.objects.get(pk=rows.own.pk).topic_id is None


def test_a_plain_row_without_relations_needs_no_scope_but_its_relations_do(rows: Rows) -> None:
    with pytest.raises(ScopeError, match="outside of any scope"), transaction.atomic():
        rows.topic.delete()
    with pytest.raises(ScopeError, match="outside of any scope"), transaction.atomic():
        Memo.objects.filter(pk=rows.memo.pk).delete()  # its many-to-many rows are tenants'
    with acme():
        assert Memo.objects.filter(pk=rows.memo.pk).delete()[0] == 1


def test_a_row_of_system_to_which_tenants_point_stays(rows: Rows) -> None:
    with tenant_scope(GLOBEX):
        Task.objects.create(code="theirs", project=rows.shared_project)
    with system_scope("clean-up"), transaction.atomic():
        Memo.objects.all().delete()
        with pytest.raises(ScopeError, match="other tenants' rows of"), transaction.atomic():
            rows.shared_project.delete()
    assert "project of None" in stored("testapp_project", "name")


def test_generic_relations_are_followed_to_own_rows_only(rows: Rows) -> None:
    with tenant_scope(GLOBEX):
        Comment.objects.create(text="theirs", about=rows.own_project)
    with acme():
        Memo.objects.all().delete()
        Comment.objects.create(text="ours", about=rows.own_project)
        rows.own_project.delete()
    assert stored("testapp_comment", "text") == ["theirs"]


def test_both_tables_of_a_model_are_emptied_together() -> None:
    with tenant_scope(GLOBEX):
        theirs = Epic.objects.create(code="theirs")
    with acme():
        ours = Epic.objects.create(code="ours")
        with pytest.raises(ScopeError, match="be deleted from"), transaction.atomic():
            theirs.delete()
        assert Epic(id=theirs.pk, task_ptr_id=theirs.pk, tenant_id=ACME).delete()[0] == 0
        assert Epic.objects.filter(goal="").delete()[1] == {"testapp.Epic": 1, "testapp.Task": 1}
        with pytest.raises(ScopeError), transaction.atomic():
            Epic(task_ptr_id=theirs.pk).save_base(raw=True)
    assert stored("testapp_epic", "task_ptr_id") == [theirs.pk]
    assert stored("testapp_task", "code", code="theirs") == ["theirs"]
    assert stored("testapp_task", "code", code="ours") == []
    assert ours.code == "ours"


def test_the_admins_collector_shows_what_would_go(rows: Rows) -> None:
    with acme():
        collector = NestedObjects(using="default")
        collector.collect(Task.objects.filter(tenant_id=ACME))
        shown = str(collector.nested())
        with pytest.raises(ScopeError, match="A row of SYSTEM"):
            NestedObjects(using="default").collect(Task.objects.filter(weight=1))
    assert "acme-task" in shown
    assert SECRET not in shown


def test_a_related_manager_clears_its_own(rows: Rows) -> None:
    with acme():
        rows.own_project.tasks.clear()
        rows.shared_project.tasks.clear()
        label = Label.objects.get(tenant_id=ACME)
        label.tasks.clear()
        rows.topic.listed.clear()
    assert stored("testapp_task", "project_id", code="acme-task") == [None]
    assert stored("testapp_task", "project_id", code="shared-task") != [None]
    assert stored("testapp_task_labels", "task_id") == [rows.foreign.pk, rows.shared.pk]
    assert stored("testapp_task_topics", "task_id") == [rows.foreign.pk, rows.shared.pk]


def test_a_plain_manager_deletes_no_more(rows: Rows) -> None:
    with acme():
        assert models.QuerySet(Label).filter(name__contains="label").delete()[1] == {
            "testapp.Task_labels": 1,
            "testapp.Label": 1,
        }
    assert stored("testapp_label", "name") == ["label of None", "label of globex"]
