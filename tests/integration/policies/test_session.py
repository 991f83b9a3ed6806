"""What a connection carries: the scope of each statement, and nothing of the one before."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, cast

import pytest
from asgiref.sync import sync_to_async
from django.db import DatabaseError, InterfaceError, OperationalError, connections, transaction

from kumiko_django import system_scope, tenant_scope
from kumiko_django.exceptions import ScopeError
from kumiko_django.run.connections import clean_connections
from kumiko_django.run.execution import _RunThread
from kumiko_django.run.threads import HandlerThreads
from kumiko_django.tenancy.checks_databases import check_roles
from kumiko_django.tenancy.lifting import reading_all
from tests.app.models import Task
from tests.integration.policies.conftest import OWNER, ROLE, bare, codes, own

pytestmark = pytest.mark.once
CARRIED = "SELECT coalesce(current_setting('kumiko' || '.tenant', true), '')"


def carried(connection: Any) -> str:
    """What the connection carries as it is, asked past Django."""
    with connection.connection.cursor() as cursor:
        return str(cursor.execute(CARRIED).fetchone()[0])


def seen(connection: Any) -> set[str]:
    """What a cursor of the driver sees, which sends nothing."""
    with connection.connection.cursor() as cursor:
        rows = cursor.execute("SELECT code FROM testapp_task").fetchall()
    return {code for (code,) in rows}


class Broken(Exception):
    """What a run raises on purpose."""


def fails_after(tenant: str) -> None:
    """Read for a tenant in a savepoint, and go back to it."""
    with transaction.atomic(using=ROLE):
        with tenant_scope(tenant):
            assert codes() == own(tenant)
        raise Broken


def work(number: int) -> set[str]:
    """What a run does: read twice, in a transaction or not, fail or not."""
    tenant = ("acme", "globex")[number % 2]
    with tenant_scope(tenant):
        found = codes()
        if number % 5 == 0:
            with transaction.atomic(using=ROLE):
                found |= codes()
                if number % 10 == 0:
                    raise Broken(tenant)
        if number % 7 == 0:
            with connections[ROLE].cursor() as cursor:
                cursor.execute("SELECT 1 / 0")
    return found


def test_two_tenants_times_a_hundred_runs_on_one_connection(policed: Any) -> None:
    """P106B: one connection, two tenants in turn, some fail: none sees the other's rows."""
    pids = set()
    for number in range(200):
        try:
            found = work(number)
        except (Broken, DatabaseError):
            found = set()
        tenant = ("acme", "globex")[number % 2]
        with tenant_scope(tenant):
            assert found | codes() == own(tenant)
        if number % 3 == 0:
            assert codes() == set()
        if number % 4 == 0:
            clean_connections()
            assert seen(policed) == set()
        pids.add(policed.connection.info.backend_pid)
    assert len(pids) == 1


def test_what_waits_for_its_next_use_carries_nothing(policed: Any) -> None:
    """P106: at the end of a run or request the session is reset, also for who goes past Django."""
    with tenant_scope("acme"):
        codes()
        assert carried(policed) == "acme"
    driver = policed.connection
    clean_connections()
    assert policed.connection is driver
    assert carried(policed) == ""
    assert seen(policed) == set()


def test_transactions_keep_what_is_true(policed: Any) -> None:
    """Savepoints and rollbacks bring back what was set, and the next statement is right."""
    with tenant_scope("acme"), transaction.atomic(using=ROLE):
        assert codes() == own("acme")
        with pytest.raises(Broken):
            fails_after("globex")
        assert codes() == own("acme")
        with tenant_scope("globex"):
            failing = transaction.atomic(using=ROLE), tenant_scope("acme"), policed.cursor()
            with pytest.raises(DatabaseError), failing[0], failing[1], failing[2] as cursor:
                cursor.execute("SELECT 1 / 0")
            assert codes() == own("globex")
        assert codes() == own("acme")
    assert carried(policed) == ""
    with transaction.atomic(using=ROLE):
        assert codes() == set()
        with tenant_scope("acme"):
            savepoint = transaction.savepoint(using=ROLE)
        with tenant_scope("globex"):
            assert codes() == own("globex")
            transaction.savepoint_rollback(savepoint, using=ROLE)
            assert codes() == own("globex")
    with tenant_scope("globex"):
        assert codes() == own("globex")
        with transaction.atomic(using=ROLE):
            assert codes() == own("globex")
            with tenant_scope("acme"):
                assert codes() == own("acme")
        assert codes() == own("globex")


def test_transactions_that_follow_one_another_share_nothing(policed: Any) -> None:
    """What was set for a transaction is not taken to hold in the next one."""
    for _ in range(3):
        with transaction.atomic(using=ROLE), tenant_scope("acme"):
            assert codes() == own("acme")
            assert carried(policed) == "acme"
        assert carried(policed) == ""
    with tenant_scope("acme"), policed.cursor() as cursor:
        cursor.execute("BEGIN")
        assert codes() == own("acme")
        cursor.execute("ROLLBACK; BEGIN")
        assert codes() == own("acme")
        cursor.execute("COMMIT")
        assert codes() == own("acme")


def test_a_statement_costs_nothing_more_while_the_scope_stays(policed: Any) -> None:
    """One more statement when the scope changes or a transaction begins, none for the others."""
    from django.test.utils import CaptureQueriesContext

    with tenant_scope("acme"):
        codes()
        before = policed.connection
        sent: list[Any] = []
        original = type(before).cursor

        def cursor(self: Any, *args: Any, **kwargs: Any) -> Any:
            sent.append(args)
            return original(self, *args, **kwargs)

        with pytest.MonkeyPatch.context() as patch, CaptureQueriesContext(policed) as queries:
            patch.setattr(type(before), "cursor", cursor)
            for _ in range(10):
                codes()
    assert len(queries) == len(sent) == 10


def test_a_terminated_connection_is_opened_anew(policed: Any) -> None:
    """What the old one carried is not taken for what the new one does."""
    with tenant_scope("acme"):
        assert codes() == own("acme")
    pid = policed.connection.info.backend_pid
    with bare(OWNER) as outside:
        outside.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    with tenant_scope("acme"), pytest.raises((OperationalError, InterfaceError)):
        codes()
    clean_connections()
    with tenant_scope("acme"):
        assert codes() == own("acme")
    assert policed.connection.info.backend_pid != pid
    with tenant_scope("globex"):
        assert codes() == own("globex")


def test_rows_of_a_server_cursor_are_for_its_scope(policed: Any) -> None:
    """A cursor on the server is read in the scope that it was opened in, also after another's."""
    with tenant_scope("acme"), transaction.atomic(using=ROLE):
        rows = Task.objects.using(ROLE).order_by("pk").iterator(chunk_size=1)
        first = next(rows)
        with tenant_scope("globex"):
            assert codes() == own("globex")
            with pytest.raises(ScopeError, match="'acme' are fetched in that of 'globex'"):
                list(rows)
        rows = Task.objects.using(ROLE).order_by("pk").iterator(chunk_size=1)
        found = [next(rows).code]
        with tenant_scope("globex"):
            codes()
        found += [task.code for task in rows]
    assert first.code == found[0]
    assert set(found) == own("acme")


def test_each_fetch_from_the_server_carries_the_scope(policed: Any) -> None:
    """What is worked out when a row is fetched, too: by policies of a project's own, say."""
    inside = transaction.atomic(using=ROLE)
    with tenant_scope("acme"), inside, policed.chunked_cursor() as cursor:
        cursor.execute(f"{CARRIED} FROM generate_series(1, 3)")
        assert cursor.fetchone() == ("acme",)
        with tenant_scope("globex"):
            codes()
        assert cursor.fetchmany(1) == [("acme",)]


def test_copy_carries_the_scope_too(policed: Any) -> None:
    """What Django's cursor hands on to the driver is guarded as well."""
    with tenant_scope("acme"):
        codes()
    with tenant_scope("globex"), policed.cursor() as cursor:
        with cursor.copy("COPY (SELECT code FROM testapp_task) TO STDOUT") as copy:
            rows = b"".join(bytes(part) for part in copy).decode().split()
        assert set(rows) == own("globex")


def test_behind_a_transaction_pooler_nothing_is_left_on_the_session(
    policed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With DISABLE_SERVER_SIDE_CURSORS the tenant is set inside transactions only."""
    monkeypatch.setitem(policed.settings_dict, "DISABLE_SERVER_SIDE_CURSORS", True)
    with tenant_scope("acme"):
        assert codes() == own("acme")
        assert carried(policed) == ""
        Task.objects.using(ROLE).create(code="new")
        with policed.cursor() as cursor, pytest.raises(DatabaseError):
            cursor.execute("SELECT 1 / 0")
        assert policed.get_autocommit()
        assert codes() == own("acme") | {"new"}
        with transaction.atomic(using=ROLE):
            assert codes() == own("acme") | {"new"}
        with policed.chunked_cursor() as cursor:
            cursor.execute("SELECT code FROM testapp_task")
            assert {code for (code,) in cursor.fetchall()} == own("acme") | {"new"}
        with policed.cursor() as cursor:
            with pytest.raises(ScopeError, match="inside transactions only"):
                cursor.copy("COPY (SELECT code FROM testapp_task) TO STDOUT")
            for _ in range(2):
                cursor.execute("BEGIN")
                assert codes() == own("acme") | {"new"}
                cursor.execute("ROLLBACK")
        assert carried(policed) == ""
    assert codes() == set()


def test_lifted_reads_end_with_their_block_on_the_session_too(policed: Any) -> None:
    """What was lifted for one statement is not for the next, in a transaction or not."""
    with tenant_scope("acme"):
        for manager in (transaction.atomic(using=ROLE), system_scope("for all")):
            with manager:
                with reading_all(Task):
                    assert "globex-task" in codes()
                assert "globex-task" not in codes()


def test_threads_have_connections_of_their_own(policed: Any) -> None:
    """P106: what one thread's connection carries is nothing to another's."""
    barrier = threading.Barrier(2, timeout=10)

    def run(tenant: str) -> list[set[str]]:
        found = []
        try:
            for _ in range(20):
                with tenant_scope(tenant):
                    barrier.wait()
                    found.append(codes())
        finally:
            connections.close_all()
        return found

    with ThreadPoolExecutor(2) as pool:
        futures = {tenant: pool.submit(run, tenant) for tenant in ("acme", "globex")}
        for tenant, future in futures.items():
            assert future.result(20) == [own(tenant)] * 20


async def test_async_runs_have_connections_of_their_own(policed: Any) -> None:
    """P106: runs on one loop, each with a thread that it borrows, see their tenant's rows."""
    threads = HandlerThreads()

    async def run(number: int) -> set[str]:
        tenant = ("acme", "globex")[number % 2]
        async with _RunThread(threads), tenant_scope(tenant):
            found = await sync_to_async(codes)()
            await asyncio.sleep(0)
            found |= {task.code async for task in Task.objects.using(ROLE).order_by("pk")}
        return found

    try:
        for start in range(0, 40, 8):
            results = await asyncio.gather(*map(run, range(start, start + 8)))
            for number, found in enumerate(results, start):
                assert found == own(("acme", "globex")[number % 2])
    finally:
        threads.close()


def test_a_pool_gets_connections_that_carry_nothing(
    policed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P106: who takes a connection from a pool after others finds nothing of theirs."""
    pooled = {"OPTIONS": {"pool": {"min_size": 1, "max_size": 1}}, "CONN_MAX_AGE": 0}
    monkeypatch.setitem(connections.databases, ROLE, {**connections.databases[ROLE], **pooled})
    policed.close()
    del connections[ROLE]
    connection: Any = connections[ROLE]
    try:
        pids = set()
        for tenant in ("acme", "globex") * 5:
            with tenant_scope(tenant):
                assert codes() == own(tenant)
                with transaction.atomic(using=ROLE):
                    assert codes() == own(tenant)
            pids.add(connection.connection.info.backend_pid)
            connection.close()
            with connection.pool.connection() as taken:
                assert taken.execute(CARRIED).fetchone() == ("",)
                assert taken.execute("SELECT code FROM testapp_task").fetchall() == []
                taken.execute("SELECT set_config('kumiko.tenant', 'initech', false)")
        assert len(pids) == 1
        assert codes() == set()
    finally:
        connection.close()
        connection.close_pool()


def test_a_role_that_policies_do_not_hold_for_is_told(policed: Any) -> None:
    """The check that ``migrate`` and ``check --database`` run."""
    (message,) = check_roles(databases=[OWNER, ROLE])
    assert message.id == "kumiko.W033"
    assert f"'{OWNER}'" in message.msg
    assert message.hint


async def test_runs_of_two_tenants_in_the_threads_of_a_worker(policed: Any) -> None:
    """P106: a hundred runs each, eight at a time, sync and async, some fail: nothing is seen."""
    threads = HandlerThreads()

    async def run(number: int) -> set[str] | None:
        try:
            async with tenant_scope(("acme", "globex")[number % 2]):
                if number % 3:
                    return cast("set[str]", await threads.run(partial(work, number)))
                async with _RunThread(threads):
                    return await sync_to_async(work)(number)
        except (Broken, DatabaseError):
            return None

    try:
        for start in range(0, 200, 8):
            results = await asyncio.gather(*map(run, range(start, start + 8)))
            for number, found in enumerate(results, start):
                assert found in (None, own(("acme", "globex")[number % 2]))
                assert (found is None) == (number % 10 == 0 or number % 7 == 0)
        assert threads._made <= 8
    finally:
        threads.close()
