"""In Django's own test cases: ``TestCase`` never commits, ``TransactionTestCase`` does."""

from __future__ import annotations

import pytest
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import TestCase, TransactionTestCase, override_settings
from django.urls import path

from kumiko_django import adispatch, adispatch_many, dispatch
from tests.app.jobs import record
from tests.app.models import Order
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.queues import QueueState
from tests.integration.broker import servers


def view(request: HttpRequest) -> HttpResponse:
    order = Order.objects.create(tenant_id="acme", number="1")
    return HttpResponse(dispatch(record, {"order": order.pk}, tenant_id="acme").job_id)


async def async_view(request: HttpRequest) -> HttpResponse:
    order = await Order.objects.acreate(tenant_id="acme", number="1")
    sent = await adispatch(record, {"order": order.pk}, tenant_id="acme")
    return HttpResponse(sent.job_id)


urlpatterns = [path("sync", view), path("async", async_view)]


class WithQueue:
    queue: QueueState

    @pytest.fixture(autouse=True)
    def _give_queue(self, queue_state: QueueStateFactory) -> None:
        self.queue = queue_state("worker")


@override_settings(ROOT_URLCONF=__name__, MIDDLEWARE=[])
class DispatchingTest(WithQueue, TestCase):
    """P64, user-needs 39: ``captureOnCommitCallbacks`` works as for every other callback."""

    def test_nothing_is_sent_by_itself(self) -> None:
        record.dispatch({}, tenant_id="acme")
        assert self.queue.pending() == 0

    def test_captured_callbacks_send(self) -> None:
        with self.captureOnCommitCallbacks() as callbacks:
            sent = [record.dispatch({}, tenant_id="acme") for _ in range(2)]
            sent += record.dispatch_many([{}, {}], tenant_id="acme")
        assert len(callbacks) == 3
        assert self.queue.pending() == 0
        for callback in callbacks:
            callback()
        assert self.queue.wait == [each.job_id for each in sent]

    def test_executed_callbacks_send(self) -> None:
        with self.captureOnCommitCallbacks(execute=True):
            job_id = self.client.get("/sync").content.decode()
            assert self.queue.pending() == 0
        assert self.queue.wait == [job_id]

    def test_an_async_view_in_the_transaction_of_a_sync_test(self) -> None:
        with self.captureOnCommitCallbacks(execute=True):
            job_id = self.client.get("/async").content.decode()
            assert self.queue.pending() == 0
        assert self.queue.wait == [job_id]

    async def test_an_async_test(self) -> None:
        await adispatch(record, {}, tenant_id="acme")
        await adispatch_many(record, [{}, {}], tenant_id="acme")
        response = await self.async_client.get("/async")
        assert response.status_code == 200
        assert self.queue.pending() == 0, "the transaction is that of the test"

    def test_after_a_failure_the_next_capture_sends(self) -> None:
        """Redis away in one part of a test says nothing about the next part."""
        with servers.silent() as port:
            away = {"REDIS_URL": f"redis://127.0.0.1:{port}/0"}
            with (
                self.settings(KUMIKO={**self.kumiko, **away}),
                self.captureOnCommitCallbacks(execute=True),
            ):
                record.dispatch({}, tenant_id="acme")
        later = self.captureOnCommitCallbacks()
        with later as callbacks:
            sent = record.dispatch({}, tenant_id="acme")
        pause = pytest.MonkeyPatch()
        pause.setattr("kumiko_django.dispatching.after_commit.SAME_CAPTURE_SECONDS", 0.0)
        callbacks[0]()
        pause.undo()
        assert self.queue.wait == [sent.job_id]

    @property
    def kumiko(self) -> dict[str, object]:
        from django.conf import settings

        return dict(settings.KUMIKO)


@override_settings(ROOT_URLCONF=__name__, MIDDLEWARE=[])
class CommittingTest(WithQueue, TransactionTestCase):
    """user-needs 1: with real transactions, sync and async."""

    def test_views(self) -> None:
        assert not connection.in_atomic_block
        ids = [self.client.get(f"/{kind}").content.decode() for kind in ("sync", "async")]
        assert self.queue.wait == ids

    async def test_async_views(self) -> None:
        response = await self.async_client.get("/async")
        assert self.queue.wait == [response.content.decode()]
