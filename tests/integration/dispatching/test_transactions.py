"""Nothing reaches Redis before the commit, and a rollback leaves nothing (P64, user-needs 1-4)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection, transaction
from django.db.transaction import TransactionManagementError
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from django.utils.connection import ConnectionDoesNotExist
from pytest_django import Settings

from kumiko_django import JobDefinition, UnknownJobError, adispatch, dispatch, registry
from tests.app.jobs import record
from tests.app.models import Order
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.processes import run_python
from tests.helpers.queues import QueueState
from tests.integration.dispatching.entries import ENTRIES, SYNC_ENTRIES, Entry

pytestmark = pytest.mark.django_db(transaction=True)

every_entry = pytest.mark.parametrize("entry", list(ENTRIES.values()), ids=list(ENTRIES))


@pytest.fixture
def queue(queue_state: QueueStateFactory) -> QueueState:
    return queue_state("worker")


class Oops(Exception):
    """Why a block is rolled back."""


@contextlib.contextmanager
def rolled_back() -> Iterator[None]:
    """A transaction, or a part of one, that fails at its end."""
    with contextlib.suppress(Oops), transaction.atomic():
        yield
        raise Oops


@every_entry
def test_a_commit_sends(entry: Entry, queue: QueueState) -> None:
    """P64, user-needs 1: not before, however long the transaction lasts."""
    with transaction.atomic():
        sent = entry()
        assert queue.pending() == 0
        assert {each.reason for each in sent} == {"after-commit"}
        assert all(sent), "accepted"
    assert queue.pending() == len(sent)
    assert all(queue.exists(each.job_id) for each in sent), "the ids that were given before"


@every_entry
def test_without_a_transaction_it_is_sent_at_once(entry: Entry, queue: QueueState) -> None:
    """P09: the answer says so."""
    sent = entry()
    assert queue.pending() == len(sent)
    assert {(each.status, each.reason) for each in sent} == {("queued", None)}


@every_entry
def test_a_rollback_leaves_nothing(entry: Entry, queue: QueueState) -> None:
    """P64, user-needs 1, 3: of the whole transaction, of a savepoint, and of what contains one."""
    with rolled_back():
        entry()
    with transaction.atomic(), rolled_back():
        entry()
    with rolled_back(), transaction.atomic():
        entry()
    with transaction.atomic():
        entry()
        transaction.set_rollback(True)
    assert queue.counts() == dict.fromkeys(queue.counts(), 0)


@every_entry
def test_a_savepoint_takes_just_its_own_away(entry: Entry, queue: QueueState) -> None:
    """user-needs 1: what was dispatched before and after it stays."""
    with transaction.atomic():
        before = entry()
        with rolled_back():
            entry()
        with transaction.atomic():
            after = entry()
        assert queue.pending() == 0
    assert queue.pending() == len(before) + len(after)
    assert all(queue.exists(each.job_id) for each in [*before, *after])


@every_entry
def test_a_durable_block_sends(entry: Entry, queue: QueueState) -> None:
    """P64: durable is only a check of Django's."""
    with transaction.atomic(durable=True):
        sent = entry()
        assert queue.pending() == 0
    assert queue.pending() == len(sent)


@every_entry
def test_immediate_does_not_wait(entry: Entry, queue: QueueState) -> None:
    """P64: an explicit opt-out, with its price: it stays after a rollback."""
    with rolled_back():
        sent = entry(immediate=True)
        assert {each.reason for each in sent} == {None}
        assert queue.pending() == len(sent)
    assert queue.pending() == len(sent)


def test_by_alias(queue: QueueState) -> None:
    """P64, design 3: under a former name just the same."""
    with registry.isolated() as jobs:
        jobs.register(
            JobDefinition(
                handler=lambda payload, ctx: None,
                name="renamed",
                app_label="testapp",
                aliases=("formerly",),
            )
        )
        with transaction.atomic():
            sent = dispatch("testapp:job:formerly", {}, tenant_id="acme")
            assert queue.pending() == 0
    assert queue.job(sent.job_id).name == "testapp:job:renamed"


def test_the_order_of_dispatches_is_kept(queue: QueueState) -> None:
    with transaction.atomic():
        first = record.dispatch({}, tenant_id="acme")
        many = record.dispatch_many([{}, {}], tenant_id="acme")
        last = record.dispatch({}, tenant_id="acme")
    assert queue.wait == [each.job_id for each in (first, *many, last)]


def test_no_payloads_no_jobs(queue: QueueState) -> None:
    assert record.dispatch_many([], tenant_id="acme") == []
    with transaction.atomic():
        assert record.dispatch_many(iter(()), tenant_id="acme") == []
    assert queue.pending() == 0


def test_the_id_can_be_stored_in_the_same_transaction(queue: QueueState) -> None:
    """user-needs 4: known before Redis is asked."""
    with transaction.atomic():
        sent = dispatch(record, {}, tenant_id="acme")
        Order.objects.create(tenant_id="acme", number=sent.job_id)
    assert queue.wait == [Order.objects.get().number]


# ------------------------------------------------------------------------------------- requests


def good_view(request: HttpRequest) -> HttpResponse:
    record.dispatch({}, tenant_id="acme")
    assert connection.in_atomic_block
    return HttpResponse(str(request.state.pending()))  # type: ignore[attr-defined]


def bad_view(request: HttpRequest) -> HttpResponse:
    record.dispatch({}, tenant_id="acme")
    raise Oops


urlpatterns = [path("good", good_view), path("bad", bad_view)]


def test_atomic_requests(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, queue: QueueState
) -> None:
    """user-needs 1: with ATOMIC_REQUESTS the job waits for the whole view to succeed."""
    settings.ROOT_URLCONF = __name__
    settings.MIDDLEWARE = []
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    monkeypatch.setattr(HttpRequest, "state", queue, raising=False)
    client = Client(raise_request_exception=False)
    assert client.get("/bad").status_code == 500
    assert queue.pending() == 0
    assert client.get("/good").content == b"0", "seen by the view itself"
    assert queue.pending() == 1


# ---------------------------------------------------------------------------- other transactions


@every_entry
def test_without_autocommit_it_is_refused(entry: Entry, queue: QueueState) -> None:
    """P64: nobody is told of such a commit; to send at once would be the fault itself."""
    transaction.set_autocommit(False)
    try:
        with pytest.raises(TransactionManagementError, match=r"Autocommit is off .*'default'"):
            entry()
        assert queue.pending() == 0
        assert len(entry(immediate=True)) == queue.pending()
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    assert entry()


@pytest.mark.once
def test_a_project_without_autocommit(queue: QueueState) -> None:
    """P64: AUTOCOMMIT = False counts before the first query too."""
    code = """
import django
from django.conf import settings
django.setup()
from django.db import transaction, connection
settings.DATABASES["default"]["AUTOCOMMIT"] = False
from kumiko_django import dispatch
from tests.app.jobs import record
try:
    dispatch(record, {}, tenant_id="acme")
except transaction.TransactionManagementError as error:
    print(error)
assert connection.connection is None, "a dispatch needs no database"
"""
    finished = run_python(code)
    assert "immediate=True" in finished.stdout, finished.stderr
    assert finished.returncode == 0, finished.stderr
    assert queue.pending() == 0


def test_another_database_that_does_not_exist() -> None:
    with pytest.raises(ConnectionDoesNotExist, match="elsewhere"):
        record.dispatch({}, tenant_id="acme", using="elsewhere")


@pytest.mark.once
def test_two_databases(queue: QueueState, tmp_path: Any) -> None:
    """user-needs 2: using= names the transaction to wait for; the others do not matter."""
    finished = run_python(
        "from tests.integration.dispatching.two_databases import main; main()",
        env={
            "DJANGO_SETTINGS_MODULE": "tests.integration.dispatching.two_databases",
            "KUMIKO_TEST_SECOND_DATABASE": str(tmp_path / "second.sqlite3"),
        },
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.split() == ["passed"] * len(ENTRIES)
    assert queue.pending() > 0


# --------------------------------------------------------------------------------- event loops


@pytest.mark.parametrize("entry", list(SYNC_ENTRIES.values()), ids=list(SYNC_ENTRIES))
async def test_sync_dispatch_on_a_running_loop_is_refused(entry: Entry, queue: QueueState) -> None:
    """design 2: it would hold up all that the loop does; the message names the way out."""
    for immediate in (False, True):
        with pytest.raises(SynchronousOnlyOperation, match="await adispatch"):
            entry(immediate=immediate)
    assert queue.pending() == 0


async def test_sync_code_between_async_code(queue: QueueState) -> None:
    """P64: the transaction is that of the thread which asgiref takes for both."""

    def work() -> str:
        with transaction.atomic():
            sent = async_to_sync(adispatch)(record, {}, tenant_id="acme")
            with rolled_back():
                async_to_sync(adispatch)(record, {}, tenant_id="acme")
            assert queue.pending() == 0
        return sent.job_id

    job_id = await sync_to_async(work)()
    assert queue.wait == [job_id]


# --------------------------------------------------------------------------- what cannot be sent


def test_an_unregistered_definition_is_refused(queue: QueueState) -> None:
    """B038: no worker would know the job; also refused before a commit, where nobody listens."""
    unknown = JobDefinition(handler=lambda payload, ctx: None, name="nowhere", app_label="testapp")
    with transaction.atomic(), pytest.raises(UnknownJobError, match="testapp:job:nowhere"):
        dispatch(unknown, {}, tenant_id="acme")
    with pytest.raises(UnknownJobError, match=r"is not registered.*registry\.register"):
        dispatch(JobDefinition(handler=lambda payload, ctx: None, name="none"), {})
    twin = JobDefinition(handler=lambda payload, ctx: None, name="record", app_label="testapp")
    with pytest.raises(UnknownJobError, match="is not registered"):
        dispatch(twin, {}, tenant_id="acme")
    assert queue.pending() == 0
