"""``ctx.db``, ``ctx.cross_tenant_reads``, ``ctx.system_db``: what they open, and for whom."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.db.models import Count, F
from django.db.models.expressions import RawSQL

from kumiko_django import (
    AccessDenied,
    FacetMissing,
    JobContext,
    ScopeError,
    system_scope,
    tenant_scope,
)
from kumiko_django.audit.models import EscapeHatchUse
from kumiko_django.audit.recorder import HatchRecorder
from kumiko_django.broker.delivery import Complete, Fail
from kumiko_django.types.ids import SYSTEM_USER_ID
from tests.app.models import Epic, Label, Project, Task, TaskProxy, Topic
from tests.unit.run.deliveries import NAME, RunOne, delivery
from tests.unit.tenancy.rows import ACME, GLOBEX, SECRET, Rows, make_rows, stored

pytestmark = pytest.mark.django_db(transaction=True)

JOB = delivery(job_name=NAME, data={"_tenantId": ACME, "_triggeredById": "7"})
ALL: Any = ["acme-task", SECRET, "shared-task"]
OWN: Any = ["acme-task", "shared-task"]
READS: dict[str, Any] = {"escape_hatches": {"cross_tenant_reads": "usage of all customers"}}
WRITES: dict[str, Any] = {"escape_hatches": {"global_writes": "keeps the rates"}}
RAW: dict[str, Any] = {"escape_hatches": {"unsafe_raw": "a report in SQL"}}


@pytest.fixture
def rows() -> Rows:
    return make_rows()


def codes(queryset: Any) -> list[str]:
    return sorted(queryset.values_list("code", flat=True))


def uses() -> list[tuple[str, str, bool, int]]:
    found = EscapeHatchUse.objects.order_by("id")
    return list(found.values_list("kind", "reason", "refused", "count"))


# ---------------------------------------------------------------------------------------- ctx.db


def test_ctx_db_gives_the_tenants_rows_sync_and_async(run_one: RunOne, rows: Rows) -> None:
    """B145: a queryset in the tenant's scope; nothing of it is on record."""

    def handler(payload: Any, ctx: JobContext) -> Any:
        ctx.db(Task).filter(code="acme-task").update(weight=5)
        return codes(ctx.db(Task))

    assert run_one(handler, JOB) == Complete(OWN)
    assert stored("testapp_task", "weight", code="acme-task") == [5]


def test_an_async_handler_awaits_it(run_one: RunOne, rows: Rows) -> None:
    """B145."""

    async def handler(payload: Any, ctx: JobContext) -> Any:
        return sorted([task.code async for task in ctx.db(Task)])

    assert run_one(handler, JOB) == Complete(OWN)


def test_what_ctx_db_gives_belongs_to_the_run(run_one: RunOne, rows: Rows) -> None:
    """B145, P106: in another scope, in a thread without one, and after the run it is refused."""
    kept: list[Any] = []

    def handler(payload: Any, ctx: JobContext) -> None:
        tasks = ctx.db(Task)
        with system_scope("to see that it is refused"):
            with pytest.raises(ScopeError, match="acme"):
                list(tasks)
            with pytest.raises(ScopeError, match=r"ctx\.db.*acme"):
                ctx.db(Task)
        assert isinstance(in_thread(lambda: list(tasks)), ScopeError)
        assert isinstance(in_thread(lambda: ctx.db(Task)), ScopeError)
        kept.append(ctx)

    assert run_one(handler, JOB) == Complete(None)
    with tenant_scope(ACME), pytest.raises(ScopeError, match="has ended"):
        kept[0].db(Task)


def test_without_a_database_ctx_db_says_so_when_it_is_used(
    run_one: RunOne, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B145, B244: it is always there; a job that does not use it needs no database."""
    refusals: list[FacetMissing] = []

    def handler(payload: Any, ctx: JobContext) -> bool:
        with monkeypatch.context() as patched:
            patched.setitem(connection.settings_dict, "ENGINE", "django.db.backends.dummy")
            with pytest.raises(FacetMissing) as caught:
                ctx.db(Task)
        refusals.append(caught.value)
        return hasattr(ctx, "db")

    assert run_one(handler, JOB) == Complete(True)
    assert NAME in str(refusals[0])
    assert "DATABASES['default']" in str(refusals[0])


# --------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("grant", "attempt"),
    [
        ("unsafe_raw", lambda ctx: ctx.db.unsafe_raw()),
        ("global_writes", lambda ctx: ctx.db.global_writes()),
        ("cross_tenant_reads", lambda ctx: ctx.cross_tenant_reads(Task)),
    ],
)
def test_without_its_grant_a_hatch_is_refused_by_name_and_on_record(
    run_one: RunOne, hatches: HatchRecorder, grant: str, attempt: Callable[[JobContext], Any]
) -> None:
    """B012, B146, B147, B149, B150, P103: the error names job and grant; no other grant helps."""
    other = "system_identity"

    def handler(payload: Any, ctx: JobContext) -> None:
        with pytest.raises(AccessDenied, match=rf"{NAME}.*lacks the grant '{grant}'"):
            attempt(ctx)
        attempt(ctx)

    outcome = run_one(handler, JOB, escape_hatches={other: "acts for users"})
    assert isinstance(outcome, Fail)
    assert hatches.flush(20)
    row = EscapeHatchUse.objects.get()
    assert (row.kind, row.refused, row.count) == (grant, True, 2)
    assert (row.job_name, row.tenant_id, row.caller_id) == (NAME, ACME, "7")
    assert row.actor_id == SYSTEM_USER_ID


def test_what_is_not_granted_is_not_there(run_one: RunOne) -> None:
    """B016, B147, B148, B149, B169: ``hasattr`` tells; there is no other way to others."""

    def handler(payload: Any, ctx: JobContext) -> list[bool]:
        with pytest.raises(FacetMissing, match="kumiko_system_scope = True"):
            _ = ctx.system_db
        return [hasattr(ctx, name) for name in ("db", "cross_tenant_reads", "system_db")]

    assert run_one(handler, JOB) == Complete([True, False, False])


# ------------------------------------------------------------------------------- reading across


def test_reading_across_tenants(run_one: RunOne, hatches: HatchRecorder, rows: Rows) -> None:
    """B149, B152: that query sees all rows, no other does; two uses are one record."""

    def handler(payload: Any, ctx: JobContext) -> None:
        everything = ctx.cross_tenant_reads(Task)
        assert codes(everything) == ALL
        assert everything.count() == 3
        assert everything.filter(code=SECRET).exists()
        assert everything.aggregate(n=Count("pk"))["n"] == 3
        assert codes(everything.filter(code=SECRET).union(Task.objects.all())) == ALL
        assert codes(ctx.cross_tenant_reads(Task).exclude(code="acme-task")) == ALL[1:]
        assert codes(Task.objects.all()) == codes(ctx.db(Task)) == OWN
        assert codes(Task.objects.filter(pk__in=everything)) == OWN

    assert run_one(handler, JOB, **READS) == Complete(None)
    assert hatches.flush(20)
    assert uses() == [("cross_tenant_reads", "usage of all customers", False, 2)]
    assert EscapeHatchUse.objects.get().detail == "ctx.cross_tenant_reads(testapp.Task)"


def test_it_is_no_wider_than_the_models_that_are_named(run_one: RunOne, rows: Rows) -> None:
    """B149: joined rows of other models are the scope's, unless named; related ones always are."""

    def handler(payload: Any, ctx: JobContext) -> None:
        foreign = ctx.cross_tenant_reads(Task).filter(code=SECRET)
        assert foreign.values_list("project__name", flat=True).get() is None
        both = ctx.cross_tenant_reads(Task, Project).filter(code=SECRET)
        assert both.values_list("project__name", flat=True).get() == f"project of {GLOBEX}"
        task = foreign.get()
        assert not task.labels.all()
        with pytest.raises(Project.DoesNotExist):
            _ = task.project
        with pytest.raises(ScopeError):
            task.save()
        with pytest.raises(ScopeError):
            task.delete()

    assert run_one(handler, JOB, **READS) == Complete(None)


def test_proxies_and_models_with_several_tables(run_one: RunOne, rows: Rows) -> None:
    """B149: the tables of a model's parents are its own; a proxy's is its model's."""
    with tenant_scope(GLOBEX):
        Epic.objects.create(code="epic", goal="all")

    def handler(payload: Any, ctx: JobContext) -> None:
        assert codes(ctx.cross_tenant_reads(Epic)) == ["epic"]
        assert ctx.cross_tenant_reads(Epic).get(goal="all").code == "epic"
        assert codes(ctx.cross_tenant_reads(TaskProxy)) == sorted([*ALL, "epic"])
        assert not ctx.db(Epic).exists()

    assert run_one(handler, JOB, **READS) == Complete(None)


def test_copies_and_combinations_are_as_wide_as_what_they_are_made_of(
    run_one: RunOne, rows: Rows
) -> None:
    """B149: a slice, a copy, a subquery and both sides of a union, each for itself."""

    def handler(payload: Any, ctx: JobContext) -> None:
        everything, own = ctx.cross_tenant_reads(Task), ctx.db(Task)
        assert everything[:5].count() == 3
        assert codes(copy.deepcopy(everything)) == ALL
        assert codes(own.union(everything)) == ALL
        assert codes(own.intersection(everything)) == OWN
        projects = Project.objects.filter(tasks__in=everything)
        assert sorted(p.name for p in projects) == ["project of None", "project of acme"]
        assert codes(everything.filter(project__in=Project.objects.all())) == OWN
        assert everything.filter(labels__name__contains="label").count() == 2
        assert everything.filter(topics__name="topic").count() == 3
        assert [t.labels.count() for t in everything.prefetch_related("labels")] == [1, 0, 1]

    assert run_one(handler, JOB, **READS) == Complete(None)


def test_nothing_is_written_across_tenants_by_it(run_one: RunOne, rows: Rows) -> None:
    """B149, P105: what it reads it does not write."""

    def handler(payload: Any, ctx: JobContext) -> None:
        everything = ctx.cross_tenant_reads(Task).filter(pk__gt=0)
        assert everything.update(weight=F("weight") + 41) == 1
        assert everything.filter(project__name__contains="project").update(due=None) == 1
        everything.filter(code=SECRET).delete()

    assert run_one(handler, JOB, **READS) == Complete(None)
    assert stored("testapp_task", "weight", code=SECRET) == [1]
    assert stored("testapp_task", "weight", code="shared-task") == [1]


def test_it_does_not_outlive_its_run_nor_leave_its_scope(run_one: RunOne, rows: Rows) -> None:
    """B149: kept, pickled, sent to a thread or another scope, it is refused when evaluated."""
    kept: list[Any] = []

    def handler(payload: Any, ctx: JobContext) -> None:
        everything = ctx.cross_tenant_reads(Task)
        kept.extend([everything, everything.filter(weight=1), ctx])
        with (
            tenant_scope(GLOBEX),
            pytest.raises(ScopeError, match="belongs to the scope of 'acme'"),
        ):
            list(everything)
        assert isinstance(in_thread(lambda: list(everything.all())), ScopeError)
        copied = contextvars.copy_context()
        assert in_thread(lambda: copied.run(codes, everything)) == ALL
        again = Task.objects.all()
        again.query = pickle.loads(pickle.dumps(everything.query))  # noqa: S301
        with pytest.raises(ScopeError, match="outlived"):
            list(again)

    assert run_one(handler, JOB, **READS) == Complete(None)
    with tenant_scope(ACME):
        for queryset in kept[:2]:
            with pytest.raises(ScopeError, match="outlived"):
                list(queryset)
        with pytest.raises(ScopeError, match="has ended"):
            kept[2].cross_tenant_reads(Task)


# ------------------------------------------------------------------------------------ global writes


def test_global_writes_reach_rows_of_the_system_and_no_other(
    run_one: RunOne, hatches: HatchRecorder, rows: Rows
) -> None:
    """B150: SYSTEM's rows and the tenant's own; not those of another tenant; for the block only."""

    def handler(payload: Any, ctx: JobContext) -> None:
        with ctx.db.global_writes():
            assert Task.objects.filter(pk__gt=0).update(weight=7) == 2
            assert Label.objects.create(name="for all").tenant_id is None
            with tenant_scope(GLOBEX):
                assert Task.objects.filter(pk__gt=0).update(due=None) == 1
        assert Task.objects.filter(pk__gt=0).update(weight=8) == 1
        assert Label.objects.create(name="own").tenant_id == ACME

    assert run_one(handler, JOB, **WRITES) == Complete(None)
    assert stored("testapp_task", "weight") == [1, 7, 8]
    assert hatches.flush(20)
    assert ("global_writes", "keeps the rates", False, 1) in uses()


def test_a_shared_row_that_others_point_to_is_not_deleted(run_one: RunOne, rows: Rows) -> None:
    """B150: a grant to write rows of all is none to break those of others."""
    with tenant_scope(GLOBEX):
        Task.objects.create(code="points", project=rows.shared_project)

    def handler(payload: Any, ctx: JobContext) -> None:
        with ctx.db.global_writes(), pytest.raises(ScopeError, match="other tenants"):
            Project.objects.filter(pk=rows.shared_project.pk).delete()

    assert run_one(handler, JOB, **WRITES) == Complete(None)
    assert stored("testapp_project", "id", id=rows.shared_project.pk)


def test_what_a_block_has_begun_is_not_lifted_after_it(run_one: RunOne, rows: Rows) -> None:
    """B150: a thread that has copied the context, and a task, lose it with the block."""

    def write(weight: int) -> int:
        return Task.objects.filter(code__contains="task").update(weight=weight)

    def handler(payload: Any, ctx: JobContext) -> None:
        with ctx.db.global_writes():
            copied = contextvars.copy_context()
            assert in_thread(lambda: copied.run(write, 2)) == 2
        assert in_thread(lambda: copied.run(write, 3)) == 1

    assert run_one(handler, JOB, **WRITES) == Complete(None)


def test_async_blocks_and_tasks_that_outlive_them(run_one: RunOne, rows: Rows) -> None:
    """B150: ``async with``; the async ORM is inside of it, a task that goes on is not."""

    async def handler(payload: Any, ctx: JobContext) -> list[int]:
        tasks, over = Task.objects.filter(pk__gt=0), asyncio.Event()

        async def later() -> int:
            await over.wait()
            return await tasks.aupdate(weight=4)

        async with ctx.db.global_writes():
            inside = await tasks.aupdate(weight=3)
            task = asyncio.create_task(later())
        over.set()
        return [inside, await task, await tasks.aupdate(weight=5)]

    assert run_one(handler, JOB, **WRITES) == Complete([2, 1, 1])


def test_blocks_that_are_left_in_a_wrong_order_leave_nothing_open(
    run_one: RunOne, rows: Rows
) -> None:
    """B150: with the outer block what was lifted in it is over."""
    grants = {**WRITES["escape_hatches"], **RAW["escape_hatches"]}

    def handler(payload: Any, ctx: JobContext) -> None:
        outer, inner = ctx.db.global_writes(), ctx.db.unsafe_raw()
        outer.__enter__()
        inner.__enter__()
        outer.__exit__(None, None, None)
        assert Task.objects.filter(pk__gt=0).update(weight=2) == 1
        inner.__exit__(None, None, None)
        assert Task.objects.filter(pk__gt=0).update(weight=2) == 1
        with pytest.raises(ScopeError, match="entered twice"):
            outer.__enter__()

    assert run_one(handler, JOB, escape_hatches=grants) == Complete(None)


# ----------------------------------------------------------------------------------------- raw SQL


def test_raw_sql(run_one: RunOne, hatches: HatchRecorder, rows: Rows) -> None:
    """B150: a cursor, and the ORM's own ways to raw SQL, inside the block."""
    sql = "SELECT code FROM testapp_task ORDER BY code"
    raw = RawSQL("weight + %s", [1])

    def handler(payload: Any, ctx: JobContext) -> None:
        with pytest.raises(ScopeError):
            list(Task.objects.annotate(more=raw))
        with ctx.db.unsafe_raw() as cursor:
            cursor.execute(sql)
            assert [code for (code,) in cursor.fetchall()] == ALL
            assert len(list(Task.objects.raw("SELECT * FROM testapp_task"))) == 3
            assert codes(Task.objects.annotate(more=raw).filter(more=2)) == OWN
            kept = Task.objects.raw("SELECT * FROM testapp_task")
        with pytest.raises(ScopeError):
            list(kept)
        with pytest.raises(ScopeError):
            list(Task.objects.annotate(more=raw))

    assert run_one(handler, JOB, **RAW) == Complete(None)
    assert hatches.flush(20)
    assert uses() == [("unsafe_raw", "a report in SQL", False, 1)]


def test_raw_sql_in_an_async_handler(run_one: RunOne, rows: Rows) -> None:
    """B150."""

    async def handler(payload: Any, ctx: JobContext) -> Any:
        async with ctx.db.unsafe_raw() as cursor:
            await cursor.executemany("UPDATE testapp_topic SET name = %s", [["new"]])
            assert cursor.rowcount == 1
            await cursor.execute("SELECT code FROM testapp_task ORDER BY code")
            first = await cursor.fetchone()
            assert cursor.description[0][0] == "code"
            rest = await cursor.fetchall()
        assert first is not None
        return [row[0] for row in (first, *rest)]

    assert run_one(handler, JOB, **RAW) == Complete(ALL)
    assert Topic.objects.get().name == "new"


def test_a_block_that_cannot_begin_lifts_nothing(run_one: RunOne, rows: Rows) -> None:
    """B150: neither does one of a database that is not there."""

    def handler(payload: Any, ctx: JobContext) -> None:
        with pytest.raises(Exception, match="nowhere"), ctx.db.unsafe_raw("nowhere"):
            pass
        with pytest.raises(ScopeError):
            list(Task.objects.raw("SELECT * FROM testapp_task"))

    assert run_one(handler, JOB, **RAW) == Complete(None)


def in_thread(call: Callable[[], Any]) -> Any:
    """What a call gives, or raises, in a thread of its own, whose context is empty."""
    answers: list[Any] = []

    def work() -> None:
        try:
            answers.append(call())
        except Exception as error:  # noqa: BLE001
            answers.append(error)
        finally:
            connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
    return answers[0]
