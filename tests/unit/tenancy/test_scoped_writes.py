"""What a scope writes, tried as a careless and as a hostile developer would (design 7, P105)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, models, transaction
from django.db.models import Case, F, Q, Subquery, Value, When
from django.db.models.functions import Coalesce

from kumiko_django import ScopeError, system_scope, tenant_scope
from tests.app.models import (
    Invoice,
    Meter,
    Organisation,
    Parcel,
    Project,
    Task,
    TaskProxy,
    TaskTwin,
)
from tests.unit.tenancy.rows import ACME, GLOBEX, SECRET, Rows, acme, stored

pytestmark = pytest.mark.django_db


def weights() -> dict[str, object]:
    return {str(code): stored("testapp_task", "weight", code=code)[0] for code in all_codes()}


def all_codes() -> list[object]:
    return stored("testapp_task", "code")


# ---------------------------------------------------------------------------------------- own rows


def test_update_and_delete_reach_own_rows_only(rows: Rows) -> None:
    everything = Q(weight__gte=0)
    with acme():
        assert Task.objects.filter(everything).update(weight=9) == 1
        assert weights() == {"acme-task": 9, SECRET: 1, "shared-task": 1}
        assert Task.objects.filter(everything).delete()[1]["testapp.Task"] == 1
    assert all_codes() == [SECRET, "shared-task"]
    with system_scope("reference data"):
        assert Task.objects.filter(everything).update(weight=9) == 1
    assert weights() == {SECRET: 1, "shared-task": 9}


UPDATES: dict[str, Callable[[Rows], Any]] = {
    "by an expression": lambda r: Task.objects.filter(pk=r.foreign.pk).update(weight=F("weight")),
    "over a join": lambda r: Task.objects.filter(project__name__contains="globex").update(weight=9),
    "over two joins": lambda r: Task.objects.filter(labels__name__contains="globex").update(
        weight=9
    ),
    "by a subquery": lambda r: Task.objects.filter(pk__in=Task.objects.filter(code=SECRET)).update(
        weight=9
    ),
    "of a plain queryset": lambda r: models.QuerySet(Task).filter(pk=r.foreign.pk).update(weight=9),
    "of a proxy": lambda r: TaskProxy.objects.filter(pk=r.foreign.pk).update(weight=9),
    "of a twin": lambda r: TaskTwin.objects.filter(pk=r.foreign.pk).update(code="9"),
    "of a sliced delete": lambda r: (
        Task.objects.filter(pk=r.foreign.pk).order_by("pk").update(weight=9)
    ),
    "bulk_update": lambda r: Task.objects.bulk_update([r.foreign], ["weight", "code"]),
    "delete": lambda r: Task.objects.filter(pk=r.foreign.pk).delete()[0],
    "delete over a join": lambda r: Task.objects.filter(project__name__contains="globex").delete()[
        0
    ],
    "delete of a twin": lambda r: TaskTwin.objects.filter(pk=r.foreign.pk).delete()[0],
    "raw delete": lambda r: Task.objects.filter(pk=r.foreign.pk)._raw_delete("default"),
    "reverse remove": lambda r: r.foreign_project.tasks.filter(pk=r.foreign.pk).update(weight=9),
    "through table": lambda r: Task.labels.through.objects.filter(task=r.foreign.pk).delete()[0],
    "through table, update": lambda r: Task.labels.through.objects.filter(task=r.foreign.pk).update(
        task=r.own
    ),
    "of SYSTEM's row": lambda r: Task.objects.filter(pk=r.shared.pk).update(weight=9),
    "delete of SYSTEM's row": lambda r: Task.objects.filter(pk=r.shared.pk).delete()[0],
    "through table of SYSTEM": lambda r: Task.labels.through.objects.filter(
        task=r.shared.pk
    ).delete()[0],
}


@pytest.mark.parametrize("name", UPDATES)
def test_no_statement_changes_another_tenants_rows(rows: Rows, name: str) -> None:
    links = stored("testapp_task_labels", "task_id")
    rows.foreign.weight = 9
    with acme():
        assert not UPDATES[name](rows)
    assert weights() == {"acme-task": 1, SECRET: 1, "shared-task": 1}
    assert stored("testapp_task_labels", "task_id") == links


INSTANCES: dict[str, Callable[[Task], Any]] = {
    "save": lambda task: task.save(),
    "save of a field": lambda task: task.save(update_fields=["weight"]),
    "save as new": lambda task: task.save(force_insert=True),
    "save as there": lambda task: task.save(force_update=True),
    "save_base": lambda task: task.save_base(raw=True),
    "save_base of Django": lambda task: models.Model.save_base(task, raw=True),
    "delete": lambda task: task.delete(),
}


@pytest.mark.parametrize("name", INSTANCES)
@pytest.mark.parametrize("disguise", ["none", "own tenant", "no tenant", "new"])
def test_an_instance_of_another_tenant_is_not_written(rows: Rows, name: str, disguise: str) -> None:
    """P105: also if it calls itself our own, or new."""
    task = rows.foreign
    task.weight = 9
    if disguise == "own tenant":
        task.tenant_id = ACME
    elif disguise == "no tenant":
        task.tenant_id = None
    elif disguise == "new":
        task = Task(pk=task.pk, code="new", weight=9)
    with acme(), transaction.atomic():
        try:
            with transaction.atomic():
                assert INSTANCES[name](task) in ((0, {}), (0, {"testapp.Task": 0}))
        except (ScopeError, DatabaseError):
            pass
    assert weights() == {"acme-task": 1, SECRET: 1, "shared-task": 1}
    assert stored("testapp_task", "tenant_id", code=SECRET) == [GLOBEX]


def test_the_error_of_a_foreign_instance_says_what_to_do(rows: Rows) -> None:
    with acme():
        with pytest.raises(ScopeError, match=r"tenant 'globex' was to be changed in testapp\.Task"):
            rows.foreign.save()
        with pytest.raises(ScopeError, match="be deleted from"):
            rows.foreign.delete()
        with pytest.raises(ScopeError, match="A row of SYSTEM was to be changed"):
            rows.shared.save()
        with pytest.raises(ScopeError, match="A row of SYSTEM"):
            Task.objects.update_or_create(code="shared-task", defaults={"weight": 9})
    with pytest.raises(ScopeError, match="outside of any scope"):
        rows.own.save()


# ------------------------------------------------------------------------- the tenant, once for all

MOVES: dict[str, Callable[[Task], Any]] = {
    "save": lambda task: task.save(),
    "save of the field": lambda task: task.save(update_fields=["tenant_id"]),
    "update": lambda task: Task.objects.filter(pk=task.pk).update(tenant_id=GLOBEX),
    "update to none": lambda task: Task.objects.filter(pk=task.pk).update(tenant_id=None),
    "update by F": lambda task: Task.objects.filter(pk=task.pk).update(tenant_id=F("code")),
    "update by Value": lambda task: Task.objects.filter(pk=task.pk).update(tenant_id=Value(GLOBEX)),
    "update by Case": lambda task: Task.objects.filter(pk=task.pk).update(
        tenant_id=Case(When(pk=task.pk, then=Value(GLOBEX)))
    ),
    "update by a subquery": lambda task: Task.objects.filter(pk=task.pk).update(
        tenant_id=Subquery(Project.objects.values("name")[:1])
    ),
    "bulk_update": lambda task: Task.objects.bulk_update([task], ["tenant_id"]),
    "update of a plain queryset": lambda task: (
        models.QuerySet(Task).filter(pk=task.pk).update(tenant_id=GLOBEX)
    ),
    "update_or_create": lambda task: Task.objects.update_or_create(
        pk=task.pk, defaults={"tenant_id": GLOBEX}
    ),
    "an expression when it is saved": lambda task: _with_expression(task).save(),
    "a conflict": lambda task: Task.objects.bulk_create(
        [Task(pk=task.pk, code="acme-task")],
        update_conflicts=True,
        unique_fields=["code"],
        update_fields=["tenant_id"],
    ),
}


def _with_expression(task: Task) -> Task:
    task.__dict__["tenant_id"] = Value(GLOBEX)
    return task


@pytest.mark.parametrize("name", MOVES)
def test_the_tenant_of_a_row_cannot_be_changed(rows: Rows, name: str) -> None:
    """P105."""
    with acme():
        task = Task.objects.get(pk=rows.own.pk)
        task.tenant_id = GLOBEX
        with pytest.raises(ScopeError), transaction.atomic():
            MOVES[name](task)
    assert stored("testapp_task", "tenant_id", code="acme-task") == [ACME]


def test_saving_a_row_as_it_is_changes_nothing_about_its_tenant(rows: Rows) -> None:
    with acme():
        task = Task.objects.get(pk=rows.own.pk)
        task.weight = 5
        task.save()
        Task.objects.filter(pk=task.pk).update(tenant_id=ACME, weight=F("weight") + 1)
    assert stored("testapp_task", "weight", code="acme-task") == [6]


def test_all_rows_at_once_are_refused(rows: Rows) -> None:
    with acme():
        for everything in (
            Task.objects.all(),
            Task._base_manager.all(),
            models.QuerySet(Task),
            Task.objects.filter(Q()),
            TaskTwin.objects.all(),
            Task.labels.through.objects.all(),
        ):
            field = "task_id" if "_" in everything.model.__name__ else "code"
            query: Any = everything
            refused = pytest.raises(ScopeError, match="without a filter")
            with refused, transaction.atomic():
                query.delete()
            with refused, transaction.atomic():
                query.update(**{field: 1})
            with refused, transaction.atomic():
                query._raw_delete("default")
        assert rows.own_project.tasks.all().update(weight=2) == 1
    assert len(all_codes()) == 3


# ------------------------------------------------------------------------------------------- insert


def test_new_rows_are_stamped_on_every_path(rows: Rows) -> None:
    with acme():
        made = [
            Task.objects.create(code="1"),
            *Task.objects.bulk_create([Task(code="2"), Task(code="3")]),
            Task.objects.get_or_create(code="4")[0],
            Task.objects.update_or_create(code="5")[0],
            rows.own_project.tasks.create(code="6"),
            rows.topic.listed.create(code="7"),
            *Task._base_manager.bulk_create([Task(code="8")], ignore_conflicts=True),
            TaskProxy.objects.create(code="9"),
        ]
        copied = Task.objects.get(code="shared-task")
        copied.pk, copied.code, copied.tenant_id = None, "copy", None
        copied._state.adding = True
        copied.save()
    for task in (*made, copied):
        assert stored("testapp_task", "tenant_id", code=task.code) == [ACME]
        assert task.tenant_id == ACME


def test_a_row_for_another_is_refused_on_every_path(rows: Rows) -> None:
    other = {"code": "x", "tenant_id": GLOBEX}
    with acme():
        for add in (
            lambda: Task.objects.create(**other),
            lambda: Task.objects.bulk_create([Task(**other)]),
            lambda: Task.objects.get_or_create(code="x", defaults=other),
            lambda: rows.own_project.tasks.create(**other),
            lambda: models.Model.save_base(Task(**other), raw=True),
            lambda: models.Model.save_base(Task(code="x"), raw=True),  # SYSTEM's, in a fixture
            lambda: TaskTwin.objects.create(code="x"),
            lambda: Task.objects.create(code="x", tenant_id=Value(GLOBEX)),
        ):
            with pytest.raises(ScopeError), transaction.atomic():
                add()
    with system_scope("load"), pytest.raises(ScopeError):
        Task.objects.create(**other)
    assert "x" not in all_codes()


def test_a_conflict_changes_own_rows_only(rows: Rows) -> None:
    """On MySQL, whose statement takes no condition, this is refused altogether."""

    def upsert(code: str) -> Any:
        return Task.objects.bulk_create(
            [Task(code=code, weight=7), Task(code="new", weight=7)],
            update_conflicts=True,
            unique_fields=["code"],
            update_fields=["weight"],
        )

    with acme():
        upsert("acme-task")
        for code in (SECRET, "shared-task"):
            with pytest.raises(ScopeError, match="in conflict with rows"), transaction.atomic():
                upsert(code)
        Task.objects.bulk_create([Task(code=SECRET, weight=7)], ignore_conflicts=True)
    assert weights() == {"acme-task": 7, "new": 7, SECRET: 1, "shared-task": 1}


def test_a_conflict_is_noticed_where_the_key_comes_from_us(rows: Rows) -> None:
    one, other = uuid.uuid4(), uuid.uuid4()
    with tenant_scope(one):
        Parcel.objects.create(slot=1, content="theirs")
    with tenant_scope(other), pytest.raises(ScopeError, match="in conflict"), transaction.atomic():
        Parcel.objects.bulk_create(
            [Parcel(slot=1, content="ours")],
            update_conflicts=True,
            unique_fields=["slot"],
            update_fields=["content"],
        )
    assert stored("testapp_parcel", "content") == ["theirs"]


# --------------------------------------------------------------------------------- kinds of columns


def test_a_tenant_column_may_be_a_foreign_key_a_number_or_a_uuid() -> None:
    one, two = (Organisation.objects.create(name=name) for name in "ab")
    with tenant_scope(one.pk):
        invoice = Invoice.objects.create(number=1)
        assert invoice.organisation == one
        with pytest.raises(ScopeError):
            Invoice.objects.create(number=2, organisation=two)
        with pytest.raises(ScopeError), transaction.atomic():
            Invoice.objects.filter(number=1).update(organisation=two)
        with pytest.raises(ScopeError), transaction.atomic():
            Invoice.objects.filter(number=1).update(organisation_id=two.pk)
        assert Invoice.objects.filter(number=1).update(organisation=one) == 1
    with tenant_scope(two.pk):
        assert list(Invoice.objects.all()) == []
        assert list(two.invoice_set.all()) == list(one.invoice_set.all()) == []
    with system_scope("look"):
        assert list(Invoice.objects.all()) == []  # its column has no NULL: SYSTEM has no rows
        with pytest.raises(ScopeError, match="has no rows"), transaction.atomic():
            Invoice.objects.create(number=3)
    with tenant_scope(7):
        assert Meter.objects.create().customer == 7
    owner = uuid.uuid4()
    with tenant_scope(owner):
        assert Parcel.objects.create(slot=1).owner == owner
        assert Parcel.objects.get().slot == 1


@pytest.mark.parametrize("tenant", ["acme", "07", "1.0", " "])
def test_an_id_that_its_column_cannot_hold_is_refused(tenant: str) -> None:
    """'07' and '7' are two tenants to everybody else, and must not be one here."""
    if tenant == " ":
        tenant = str(uuid.uuid4()).upper()
        with tenant_scope(tenant), pytest.raises(ScopeError, match="lower case"):
            list(Parcel.objects.all())
        return
    with tenant_scope(tenant), pytest.raises(ScopeError, match=r"cannot stand in testapp\.Meter"):
        list(Meter.objects.all())


def test_a_foreign_key_that_leads_to_another_column_than_the_ids_says_so() -> None:
    with (
        tenant_scope("acme"),
        pytest.raises(ScopeError, match=r"ForeignKey to testapp\.Organisation\.id.*to_field="),
    ):
        list(Invoice.objects.all())


# ------------------------------------------------------------------------------------- relations

LINKS: dict[str, Callable[[Rows], Any]] = {
    "create": lambda r: Task.objects.create(code="x", project=r.foreign_project),
    "create by key": lambda r: Task.objects.create(code="x", project_id=r.foreign_project.pk),
    "create below it": lambda r: r.foreign_project.tasks.create(code="x"),
    "bulk_create": lambda r: Task.objects.bulk_create([Task(code="x", parent=r.foreign)]),
    "save": lambda r: _linked(r).save(),
    "save of a field": lambda r: _linked(r).save(update_fields=["project"]),
    "update": lambda r: Task.objects.filter(pk=r.own.pk).update(project=r.foreign_project),
    "update by key": lambda r: Task.objects.filter(pk=r.own.pk).update(
        project_id=r.foreign_project.pk
    ),
    "update by Value": lambda r: Task.objects.filter(pk=r.own.pk).update(
        project_id=Value(r.foreign_project.pk)
    ),
    "update by F": lambda r: Task.objects.filter(pk=r.own.pk).update(project_id=F("weight")),
    "update by Coalesce": lambda r: Task.objects.filter(pk=r.own.pk).update(
        project_id=Coalesce(F("topic_id"), Value(1))
    ),
    "bulk_update": lambda r: Task.objects.bulk_update([_linked(r)], ["project"]),
    "a foreign self reference": lambda r: Task.objects.filter(pk=r.own.pk).update(parent=r.foreign),
    "set": lambda r: r.own_project.tasks.add(r.foreign),
    "many to many": lambda r: r.own.labels.add(_foreign_label(r)),
    "many to many, the other way": lambda r: r.foreign.labels.add(_own_label(r)),
    "many to many by key": lambda r: r.own.labels.add(_foreign_label(r).pk),
    "many to many of a plain row": lambda r: r.topic.listed.add(r.foreign),
    "through table": lambda r: Task.labels.through.objects.create(
        task_id=r.own.pk, label_id=_foreign_label(r).pk
    ),
    "through table, moved": lambda r: Task.labels.through.objects.filter(task=r.own).update(
        task_id=r.foreign.pk
    ),
    "through table between rows of SYSTEM": lambda r: r.shared.topics.add(
        type(r.topic).objects.create(name="another")
    ),
}


def _linked(rows: Rows) -> Task:
    rows.own.project_id = rows.foreign_project.pk
    return rows.own


def _foreign_label(rows: Rows) -> Any:
    with tenant_scope(GLOBEX):
        return rows.foreign.labels.get()


def _own_label(rows: Rows) -> Any:
    return rows.own.labels.get()


@pytest.mark.parametrize("name", LINKS)
def test_rows_do_not_point_to_other_tenants_rows(rows: Rows, name: str) -> None:
    tables = [("testapp_task", "project_id"), ("testapp_task", "parent_id")]
    tables += [("testapp_task_labels", "label_id"), ("testapp_task_topics", "task_id")]
    before = [stored(*column) for column in tables]
    with acme():
        if name == "set":
            assert rows.own_project.tasks.add(rows.foreign) is None  # type: ignore[func-returns-value]
        else:
            with pytest.raises((ScopeError, IntegrityError)), transaction.atomic():
                LINKS[name](rows)
    assert [stored(*column) for column in tables] == before


def test_rows_point_to_own_rows_and_to_systems(rows: Rows) -> None:
    with acme():
        task = Task.objects.create(code="x", project=rows.shared_project, parent=rows.shared)
        task.project = rows.own_project
        task.save()
        Task.objects.filter(pk=task.pk).update(project=None, parent=rows.own)
        task.labels.add(_own_label(rows), rows.shared.labels.get())
        assert task.labels.count() == 2
        task.labels.set([_own_label(rows)])
        task.labels.clear()
        rows.topic.listed.remove(rows.own)
    assert len(stored("testapp_task_topics", "task_id")) == 2
