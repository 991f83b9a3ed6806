"""Every public method of QuerySet and Manager: without scope, in the wrong one, in the right one.

From tenant models, from managers and models that know nothing of tenants, from related managers,
and from a plain model that joins a tenant table (design 7, P105).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ObjectDoesNotExist
from django.db import IntegrityError, models, transaction

from kumiko_django import ScopeError, tenant_scope
from tests.app.models import Label, Memo, Project, Task, TaskProxy
from tests.unit.tenancy import methods
from tests.unit.tenancy.methods import SYNC, Call
from tests.unit.tenancy.rows import ACME, GLOBEX, Rows, stored

pytestmark = pytest.mark.django_db

NAMES = sorted(methods.public(models.QuerySet) | methods.public(models.Manager))
CALLED = [name for name in NAMES if name not in methods.PASSIVE]


def roots(rows: Rows, name: str) -> Iterator[tuple[str, Any, Any, Any]]:
    """Where queries begin: a label, a manager (or what stands for one), own and foreign row.

    Async methods, which call their sync twins in a thread, are tried from a few of them.
    """
    yield "objects", Task.objects, rows.own, rows.foreign
    yield "reverse foreign key", rows.own_project.tasks, rows.own, rows.foreign
    joined = Memo.objects.filter(project__name__startswith="project")
    yield "plain, joined", joined, rows.memo, rows.foreign_memo
    if methods.twin(name) is not None:
        return
    with tenant_scope(ACME):
        own_label = Label.objects.get(tenant_id=ACME)
    yield "_base_manager", Task._base_manager, rows.own, rows.foreign
    yield "_default_manager", Task._default_manager, rows.own, rows.foreign
    yield "a manager without tenants", Task.open, rows.own, rows.foreign
    yield "a plain queryset", models.QuerySet(Task), rows.own, rows.foreign
    yield "proxy", TaskProxy.objects, proxy_of(rows.own), proxy_of(rows.foreign)
    yield "reverse foreign key, plain", rows.topic.tasks, rows.own, rows.foreign
    yield "many to many", own_label.tasks, rows.own, rows.foreign
    yield "many to many, plain", rows.topic.listed, rows.own, rows.foreign


def proxy_of(task: Task) -> TaskProxy:
    return TaskProxy(pk=task.pk, tenant_id=task.tenant_id, code=task.code, weight=task.weight)


def call(name: str, start: Any, row: Any) -> Any:
    """Call a method by name, sync or async, with the arguments that ``methods`` has for it."""
    if name == "aiterator":
        return row in async_to_sync(_gathered)(start)
    bound: Callable[..., Any] = getattr(start, name)
    sync = methods.twin(name)
    if sync is None:
        return SYNC[name](bound, row)

    def through_the_loop(*args: Any, **kwargs: Any) -> Any:
        async def awaited() -> Any:
            return await bound(*args, **kwargs)

        return async_to_sync(awaited)()

    through_the_loop.__self__ = start  # type: ignore[attr-defined]
    return SYNC[sync](through_the_loop, row)


async def _gathered(start: Any) -> list[Any]:
    return [row async for row in start.aiterator()]


def kind(name: str) -> dict[str, Call]:
    sync = methods.twin(name) or name
    if sync == "aiterator":
        return methods.READS
    return next(group for group in methods.GROUPS if sync in group)


def found(name: str, start: Any, row: Any) -> bool:
    """Whether a call finds the row, with everything that it did undone."""
    with transaction.atomic():
        try:
            with transaction.atomic():
                return bool(call(name, start, row))
        except (ObjectDoesNotExist, IntegrityError, ScopeError):
            return False
        finally:
            transaction.set_rollback(True)


def test_every_method_is_classified() -> None:
    """A method that Django adds tomorrow fails here until somebody has thought about it."""
    known = {*SYNC, *(f"a{name}" for name in SYNC), *methods.ASYNC_ONLY, *methods.PASSIVE}

    assert set(NAMES) - known == set()
    assert set(SYNC) - set(NAMES) == set(), "no method has gone"


@pytest.mark.parametrize("name", CALLED)
def test_without_a_scope_every_method_is_refused(rows: Rows, name: str) -> None:
    for label, manager, own, _ in roots(rows, name):
        for start in {id(m): m for m in (manager, manager.all())}.values():
            if not callable(getattr(start, name, None)):
                continue  # managers lack what would work on all rows at once
            if kind(name) is methods.ADDS:
                if start.model is Memo:
                    continue  # a plain row is added
                argument: Any = {"code": "new"}
            else:
                argument = own
            refused = pytest.raises(ScopeError, match=r"outside of any scope|without a filter")
            with refused, transaction.atomic():
                call(name, start, argument)
            assert label


@pytest.mark.parametrize("name", CALLED)
def test_the_right_scope_finds_the_row_and_the_wrong_one_does_not(rows: Rows, name: str) -> None:
    group = kind(name)
    before = stored("testapp_task", "weight", code=rows.foreign.code)
    for label, manager, own, foreign in roots(rows, name):
        if group is methods.ADDS:
            continue
        for row, scope, expected in (
            (own, ACME, group in (methods.READS, methods.WRITES, methods.TEXT)),
            (foreign, ACME, group is methods.TEXT),
            (own, GLOBEX, group is methods.TEXT),
        ):
            with tenant_scope(scope):
                start = manager.filter(pk=row.pk)
                where = f"{label}: {name} of {row.code} in {scope}"
                assert found(name, start, row) is expected, where
            assert stored("testapp_task", "weight", code=rows.foreign.code) == before, where


@pytest.mark.parametrize("name", [name for name in CALLED if kind(name) is methods.ADDS])
def test_what_is_added_belongs_to_the_scope(rows: Rows, name: str) -> None:
    for label, manager, _, _ in roots(rows, name):
        if manager.model is Memo:
            continue
        code = f"new {label}"
        with tenant_scope(ACME):
            call(name, manager, {"code": code})
            assert stored("testapp_task", "tenant_id", code=code) == [ACME]
            for other in (GLOBEX, "nobody"):
                with pytest.raises(ScopeError, match="enter that of"), transaction.atomic():
                    call(name, manager, {"code": f"{code} 2", "tenant_id": other})
        assert stored("testapp_task", "code", code=f"{code} 2") == []


def test_projects_are_what_the_joined_root_needs(rows: Rows) -> None:
    """The join of the last root is a real one."""
    with tenant_scope(ACME):
        sql = str(Memo.objects.filter(project__name__startswith="project").query)
    assert f'JOIN "{Project._meta.db_table}"' in sql
