"""``TenantRouter``, with three real databases."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import connections, router, transaction
from pytest_django import Settings

from kumiko_django import (
    JobDefinition,
    dispatch,
    pending_count,
    registry,
    system_scope,
    tenant_scope,
)
from kumiko_django.exceptions import ScopeError, SettingsError
from kumiko_django.handlers import write
from kumiko_django.handlers.definition import HandlerDefinition
from kumiko_django.handlers.registry import handlers
from kumiko_django.history.models import JobRun
from kumiko_django.tenancy.lifting import reading_all
from kumiko_django.tenancy.routers import TenantRouter
from kumiko_django.testing import drain
from tests.app.models import Epic, Label, Memo, Project, Task, TaskProxy, Topic
from tests.integration.databases.placing import ARCHIVE, EU, nowhere, undeclared

ALL = ["default", EU, ARCHIVE]
PLACES = [("acme", "default", EU), ("globex", EU, "default")]
pytestmark = [
    pytest.mark.usefixtures("databases", "placed"),
    pytest.mark.django_db(databases=ALL),
]


def stored(alias: str, table: str = "testapp_task", column: str = "code") -> set[str]:
    """What stands in a table of a database, seen past scopes and router."""
    with connections[alias].cursor() as cursor:
        cursor.execute(f"SELECT {column} FROM {table}")  # noqa: S608
        return {value for (value,) in cursor.fetchall()}


def tables(alias: str) -> set[str]:
    """The tables of a database."""
    return set(connections[alias].introspection.table_names())


def test_each_tenant_has_its_rows_in_its_database() -> None:
    """user-needs 23: by every path, without a database named."""
    for tenant in ("acme", "globex"):
        with tenant_scope(tenant):
            project = Project.objects.create(name=tenant)
            task = Task.objects.create(code=tenant, project=project)
            task.labels.add(Label.objects.create(name=tenant))
            Epic(code=f"epic of {tenant}").save()
            Task.objects.bulk_create([Task(code=f"{tenant} 2", project=project)])
            assert Task.objects.filter(code=tenant).update(weight=3) == 1
            assert Task.objects.get_or_create(code=tenant)[1] is False
            assert project.tasks.count() == 2
            assert [label.name for label in task.labels.all()] == [tenant]
            assert TaskProxy.objects.get(code=f"{tenant} 2").delete()[0] == 1
    for alias, tenant in (("default", "acme"), (EU, "globex")):
        assert stored(alias) == {tenant, f"epic of {tenant}"}
        assert stored(alias, "testapp_label", "name") == {tenant}


@pytest.mark.django_db(databases=ALL, transaction=True)
async def test_the_router_follows_the_scope_through_asynchronous_queries() -> None:
    """The database is that of the scope in which a query runs, not of the one it was made in."""
    queryset = Task.objects.order_by("pk")
    for tenant in ("acme", "globex"):
        async with tenant_scope(tenant):
            await Task.objects.acreate(code=tenant)
            assert [task.code async for task in queryset.all()] == [tenant]
    assert await sync_to_async(stored)(EU) == {"globex"}


def subquery() -> Any:
    """A query within another one's condition."""
    return Task.objects.values("topic")


@pytest.mark.parametrize(
    "attempt",
    [
        lambda right, wrong: Task.objects.using(wrong).count(),
        lambda right, wrong: Task.objects.using(wrong).filter(pk=1).exists(),
        lambda right, wrong: Task.objects.using(wrong).create(code="x"),
        lambda right, wrong: Task(code="x").save(using=wrong),
        lambda right, wrong: Task.objects.using(wrong).bulk_create([Task(code="x")]),
        lambda right, wrong: Task.objects.using(wrong).filter(pk=1).update(weight=1),
        lambda right, wrong: Task.objects.using(wrong).filter(pk=1).delete(),
        lambda right, wrong: Task.labels.through.objects.using(wrong).count(),
        lambda right, wrong: Epic.objects.using(wrong).first(),
        lambda right, wrong: Memo.objects.using(wrong).filter(task__code="x").exists(),
        lambda right, wrong: list(Memo.objects.using(wrong).select_related("task")),
        lambda right, wrong: Task.objects.db_manager(wrong).get_or_create(code="x"),
        lambda right, wrong: (
            (
                Topic.objects.using(right).filter(pk__in=Task.objects.values("topic")).count()
                and Topic.objects.using(wrong).filter(tasks__code="x").count()
            )
            or Topic.objects.using(wrong).filter(pk__in=Task.objects.values("topic")).count()
        ),
    ],
)
@pytest.mark.parametrize(("tenant", "right", "wrong"), PLACES)
def test_the_wrong_database_is_refused(attempt: Any, tenant: str, right: str, wrong: str) -> None:
    """A statement for a tenant whose rows are elsewhere is refused, with where they are."""
    refused = pytest.raises(ScopeError, match=f"are in '{right}'")
    with refused, tenant_scope(tenant), transaction.atomic(), transaction.atomic(using=EU):
        attempt(right, wrong)
    assert stored(wrong) == stored(right) == set()


def test_without_a_scope_nothing_is_asked_for() -> None:
    """The router has no opinion then, and the statement is refused."""
    assert router.db_for_read(Task) == "default"
    for queryset in (Task.objects.all(), Task.objects.using(EU)):
        with pytest.raises(ScopeError, match="outside of any scope"):
            queryset.count()


def test_systems_rows_are_in_each_database_by_name() -> None:
    """SYSTEM's scope works in the default database; ``using`` names that of a tenant."""
    with system_scope("reference data"):
        Task.objects.create(code="here")
        Task.objects.using(EU).create(code="there")
        project = Project.objects.using(EU).create(name="there")
        assert project.tasks.create(code="also there")._state.db == EU
        with pytest.raises(ScopeError, match="no tables of tenants"):
            Task.objects.using(ARCHIVE).count()
    with tenant_scope("globex"):
        assert set(Task.objects.values_list("code", flat=True)) == {"there", "also there"}
    with tenant_scope("acme"):
        assert [task.code for task in Task.objects.all()] == ["here"]


def test_rows_of_all_tenants_are_read_database_by_database() -> None:
    """What a scope may read of all, it may read elsewhere; writing stays where it was."""
    with tenant_scope("globex"):
        Task.objects.create(code="theirs")
    with tenant_scope("acme"), reading_all(Task):
        assert Task.objects.count() == 0
        assert [task.code for task in Task.objects.using(EU)] == ["theirs"]
        with pytest.raises(ScopeError, match="are in 'default'"):
            Task.objects.using(EU).filter(code="theirs").update(weight=1)


def test_relations_between_tenants_and_databases_are_refused() -> None:
    """P105: as soon as they are assigned, before anything is written."""
    made = {}
    for tenant in ("acme", "globex", "initech"):
        with tenant_scope(tenant):
            made[tenant] = Project.objects.create(name=tenant)
    with system_scope("reference data"):
        shared = Project.objects.create(name="shared")
    with tenant_scope("acme"):
        task = Task.objects.create(code="own", project=made["acme"])
        for other in ("globex", "initech"):
            with pytest.raises(ValueError, match="router prevents"):
                task.project = made[other]
        task.project = shared
        task.project = None
        task.save()
        topic = Topic.objects.using(EU).create(name="elsewhere")
        with pytest.raises(ValueError, match="router prevents"):
            task.topic = topic
    with tenant_scope("globex"):
        late = Task(code="late")
        late.project = made["globex"]
        late.save()
        with pytest.raises(ValueError, match="router prevents"):
            late.project = shared
    assert stored(EU) == {"late"}


def test_tables_are_where_they_belong() -> None:
    """Ours in the history's database, tenants' where tenants are, others wherever migrated."""
    ours, theirs, plain = "kumiko_jobrun", "testapp_task", "testapp_topic"
    found = {alias: tables(alias) for alias in (EU, ARCHIVE)}
    assert theirs in found[EU]
    assert not [name for name in found[EU] if name.startswith("kumiko_")]
    assert ours in found[ARCHIVE]
    absent = {theirs, "testapp_task_labels", "testapp_epic", "testapp_memo", "testapp_duty"}
    assert absent <= found[EU]
    assert not absent & found[ARCHIVE]
    assert plain in found[EU] & found[ARCHIVE]
    assert router.allow_migrate("default", "testapp", model_name="task")
    assert not router.allow_migrate("default", "kumiko")
    assert router.allow_migrate("default", "auth", model_name="user")


def test_without_a_list_the_history_has_no_tables_of_tenants(settings: Settings) -> None:
    """Every other database may; which of them does is left to others."""
    settings.KUMIKO = {**settings.KUMIKO, "TENANT_DATABASE": nowhere}
    ours = TenantRouter()
    allowed = [ours.allow_migrate(alias, "testapp", model_name="task") for alias in ALL]
    assert allowed == [True, None, False]
    assert ours.allow_migrate(ARCHIVE, "testapp", model_name="memo") is False
    assert ours.allow_migrate(ARCHIVE, "testapp", model_name="topic") is None
    assert ours.allow_migrate(EU, "testapp") is ours.allow_migrate(EU, "testapp", "gone") is None


def test_plain_models_are_left_to_others() -> None:
    """Users and the like have the database that Django, or another router, gives them."""
    with tenant_scope("globex"):
        assert router.db_for_read(User) == router.db_for_write(Topic) == "default"
        assert router.db_for_write(JobRun) == ARCHIVE
        task = Task.objects.create(code="x", topic=Topic.objects.using(EU).create(name="x"))
        topic = Task.objects.get(pk=task.pk).topic
        assert topic is not None
        assert topic._state.db == EU


def test_a_transaction_of_the_tenants_database_is_named_by_the_router() -> None:
    """``atomic()`` alone is one of the default database, wherever the tenant is."""
    with tenant_scope("globex"):
        for using, left in (("default", {"x"}), (router.db_for_write(Task), {"x"})):
            with transaction.atomic(using=using):
                Task.objects.create(code="x" if using == "default" else "y")
                transaction.set_rollback(True, using=using)
            assert stored(EU) == left


@pytest.mark.django_db(databases=ALL, transaction=True)
def test_work_waits_for_the_transaction_of_the_tenants_database() -> None:
    """What is dispatched in it is sent with its commit, and not at all after a rollback."""
    with tenant_scope("globex"):
        for fails in (True, False):
            with transaction.atomic(using=EU):
                assert dispatch("testapp:job:quiet", {}).reason == "after-commit"
                transaction.set_rollback(fails, using=EU)
            assert pending_count() == (0 if fails else 1)
        with transaction.atomic():
            assert dispatch("testapp:job:quiet", {}).reason == "after-commit"
            transaction.set_rollback(True)
        assert pending_count() == 1
    drain()


@pytest.mark.django_db(databases=ALL, transaction=True)
def test_sql_of_a_jobs_own_goes_to_the_tenants_database() -> None:
    """B150: unless it names another one."""
    seen: list[tuple[str, str]] = []

    def looks(payload: Any, ctx: Any) -> None:
        with ctx.db.unsafe_raw() as own, ctx.db.unsafe_raw("default") as named:
            seen.append((own.db.alias, named.db.alias))

    definition = JobDefinition(
        looks, app_label="testapp", name="looks", escape_hatches={"unsafe_raw": "a report"}
    )
    with registry.isolated():
        registry.register(definition)
        for tenant in ("acme", "globex"):
            dispatch(definition, tenant_id=tenant)
        drain()
    assert sorted(seen) == [("default", "default"), (EU, "default")]


class _Broken(Exception):
    pass


def _half_done(payload: Any, ctx: Any) -> None:
    Task.objects.create(code="half")
    raise _Broken


@pytest.mark.django_db(databases=ALL, transaction=True)
def test_a_write_handler_has_a_transaction_of_the_tenants_database() -> None:
    """Half of a write leaves nothing, wherever the tenant's rows are."""
    definition = HandlerDefinition(
        "write", _half_done, app_label="testapp", name="half-done", roles=frozenset({"anonymous"})
    )
    with handlers.isolated():
        name = handlers.register(definition).qualified_name
        for tenant in ("acme", "globex"):
            with tenant_scope(tenant), pytest.raises(_Broken):
                write(name, {})
    assert stored("default") == stored(EU) == set()


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("TENANT_DATABASE", nowhere, "'elsewhere' for tenant 'acme', which is not in DATABASES"),
        ("TENANT_DATABASE", undeclared, "without tables of tenants"),
        ("TENANT_DATABASE", "no.where", "cannot be imported"),
        ("HISTORY_DATABASE", "elsewhere", "'elsewhere' is not in DATABASES"),
    ],
)
def test_what_names_no_database_is_an_error(
    settings: Settings, key: str, value: Any, told: str
) -> None:
    """The setting, the tenant and the fix are named."""
    settings.KUMIKO = {**settings.KUMIKO, key: value}
    with tenant_scope("acme"), pytest.raises(SettingsError, match=told):
        (JobRun if key == "HISTORY_DATABASE" else Task).objects.count()


@pytest.mark.django_db(databases=ALL, transaction=True)
def test_the_history_has_its_database_whatever_the_tenants() -> None:
    """Runs are recorded there, and their effects are in the database of the handler's rows."""
    for tenant in ("acme", "globex"):
        dispatch("testapp:job:record", {"key": tenant}, tenant_id=tenant)
    drain()
    assert stored(ARCHIVE, "kumiko_jobrun", "tenant_id") == {"acme", "globex"}
    assert stored("default", "kumiko_jobrun", "tenant_id") == set()
    assert JobRun.objects.filter(status="completed").count() == 2
