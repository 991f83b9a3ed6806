"""``drain()``: everything that is pending runs in the test's process, and failures are raised."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured, SynchronousOnlyOperation
from django.db import transaction

from kumiko_django import (
    Backoff,
    BrokerUnavailable,
    JobContext,
    JobDefinition,
    dispatch,
    pending_count,
    signals,
)  # fmt: skip
from kumiko_django.broker.lane_worker import LaneWorker
from kumiko_django.definitions.registry import registry
from kumiko_django.history.models import JobRun
from kumiko_django.testing import adrain, drain
from tests.app.jobs import api_echo, chain, record, record_async
from tests.app.models import Effect
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.valkey import Valkey
from tests.helpers.waiting import wait_until

Define = Callable[..., JobDefinition]


class Broken(Exception):
    """What handlers raise here."""


@pytest.fixture
def define(transactional_db: None, queue_prefix: str) -> Iterator[Define]:
    """Register a handler for the length of the test."""
    with registry.isolated():

        def register(handler: Callable[..., Any], **options: Any) -> JobDefinition:
            return registry.register(
                JobDefinition(handler=handler, **{"app_label": "testapp", **options})
            )

        yield register


@pytest.fixture
def real(transactional_db: None, queue_prefix: str) -> None:
    """Real transactions and a queue of the test's own."""


def test_nothing_to_do_takes_no_time(real: None) -> None:
    """user-needs 40: below 50 ms, connecting included, once the machine lets it."""

    def took() -> float:
        began = time.perf_counter()
        assert drain() == []
        return time.perf_counter() - began

    wait_until(lambda: took() < 0.05, description="an empty drain took under 50 ms", timeout=60)


@pytest.mark.parametrize("step", ["requeue_stalled", "wait_for_work"])
def test_a_cancellation_that_gets_lost_is_repeated(
    step: str, real: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop in the middle of the look for stalled jobs waited for the next one, or for ever; one
    in the middle of the wait for work, until that was over."""

    async def swallows(self: LaneWorker) -> list[str]:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        if step == "wait_for_work":
            await asyncio.Event().wait()
        return []

    monkeypatch.setattr(LaneWorker, step, swallows)
    ended: list[Any] = []
    # In a thread: one that waits for ever would not let the test fail.
    thread = threading.Thread(target=lambda: ended.append(drain()), daemon=True)
    thread.start()
    thread.join(15)
    assert ended == [[]]


def test_everything_runs_follow_ups_included(real: None, queue_state: QueueStateFactory) -> None:
    """Both lanes, sync and async, with effects, history and scope as in a worker."""
    for number in range(5):
        record.dispatch({"key": "sync", "returns": number}, tenant_id="acme")
    record_async.dispatch({"key": "async"}, tenant_id="globex", priority="high")
    api_echo.dispatch({"a": 1}, tenant_id="acme")
    chain.dispatch({}, tenant_id="acme")
    runs = drain()
    assert len(runs) == 9
    assert {run.error for run in runs} == {None}
    assert pending_count() == 0
    assert Effect.objects.filter(key="sync").count() == 5
    assert [run.tenant_id for run in runs if run.job_name.endswith("record-async")] == ["globex"]
    assert JobRun.objects.filter(status="completed").count() == 9
    state = queue_state("worker")
    assert not state.client.exists(state.key("unrecorded")), "the history has all records"


def test_the_handlers_own_exception_is_raised(define: Define) -> None:
    """user-needs 40: the original, with the handler's frame and the job in it."""

    def fails(payload: Any, ctx: JobContext) -> None:
        raise Broken("on purpose")

    sent = dispatch(define(fails), tenant_id="acme")
    record.dispatch({"key": "after"}, tenant_id="acme")
    with pytest.raises(Broken, match="on purpose") as told:
        drain()
    text = "".join(traceback.format_exception(told.value))
    assert "in fails" in text
    assert sent.job_id in text
    assert Effect.objects.filter(key="after").exists(), "the others have run all the same"


def test_several_failures_and_refusals(define: Define) -> None:
    async def fails(payload: Any, ctx: JobContext) -> None:
        raise Broken(ctx.job_id)

    job = define(fails)
    ids = {dispatch(job, tenant_id="acme").job_id for _ in range(2)}
    with pytest.raises(ExceptionGroup, match="2 jobs failed") as told:
        drain()
    assert {str(error) for error in told.value.exceptions} == ids


def test_failures_can_be_returned(define: Define) -> None:
    """Every attempt; a retry does not wait for its backoff, and only the last failure is one."""

    def fails_twice(payload: Any, ctx: JobContext) -> str:
        if ctx.attempt < 3:
            raise Broken(f"attempt {ctx.attempt}")
        return "well"

    def fails(payload: Any, ctx: JobContext) -> None:
        raise Broken("for good")

    patient = define(fails_twice, retries=5, backoff=Backoff.exponential(3600))
    hopeless = define(fails)
    dispatch(patient, tenant_id="acme")
    runs = drain()
    assert [(run.attempt, run.final, bool(run.error)) for run in runs] == [
        (1, False, True), (2, False, True), (3, True, False),
    ]  # fmt: skip
    dispatch(hopeless, tenant_id="acme")
    (run,) = drain(raise_failures=False)
    assert (run.error, run.final) == ("Broken: for good", True)


def test_what_is_planned_for_later_stays_unless_asked_for(real: None) -> None:
    """In the order in which it was to come; ticks of schedulers stay in any case (B218)."""
    record.dispatch({"key": "second"}, tenant_id="acme", delay=7200)
    record.dispatch({"key": "first"}, tenant_id="acme", delay=3600)
    record.dispatch({"key": "now"}, tenant_id="acme")
    assert len(drain()) == 1
    assert pending_count() == 2
    drain(later=True)
    keys = [effect.key for effect in Effect.objects.order_by("id")]
    assert keys == ["now", "first", "second"]


def test_one_lane_only(real: None) -> None:
    record.dispatch({}, tenant_id="acme")
    api_echo.dispatch({}, tenant_id="acme")
    (run,) = drain(lanes=["api"])
    assert run.job_name == "testapp:job:api-echo"
    assert pending_count() == 1
    drain()


def test_a_job_that_goes_on_for_ever_is_told(define: Define) -> None:
    """And given back, so that nothing of it runs on into the next test."""
    ended = threading.Event()

    async def endless(payload: Any, ctx: JobContext) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    dispatch(define(endless), tenant_id="acme")
    with pytest.raises(TimeoutError, match=r"Not drained within 0.3 s.*worker: .*active=1"):
        drain(timeout=0.3)
    assert ended.is_set()
    assert JobRun.objects.get().status == "interrupted"
    assert pending_count() == 1


def test_an_open_transaction_is_refused(real: None) -> None:
    """The handlers would not see its rows, and wait for its locks."""
    with transaction.atomic(), pytest.raises(ImproperlyConfigured, match="transaction=True"):
        drain()


async def test_in_async_tests(real: None) -> None:
    await record.adispatch({"key": "async"}, tenant_id="acme")
    with pytest.raises(SynchronousOnlyOperation, match="await adrain"):
        drain()
    (run,) = await adrain()
    assert run.job_name == "testapp:job:record"


def test_redis_away_is_one_typed_error(
    own_valkey: Valkey, transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The name in the package is the function's.
    monkeypatch.setattr(sys.modules["kumiko_django.testing.drain"], "CONNECT_SECONDS", 0.5)
    own_valkey.stop()
    before = threading.active_count()
    with pytest.raises(BrokerUnavailable):
        drain()
    assert threading.active_count() <= before


def test_receivers_of_the_test_are_heard_and_ours_are_gone(real: None) -> None:
    listeners = len(signals.job_completed.receivers)
    record.dispatch({}, tenant_id="acme")
    drain()
    assert len(signals.job_completed.receivers) == listeners
