"""The host's signals: exact values, after the record, and no receiver changes an outcome."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction
from django.dispatch import Signal
from pytest_django import Settings

from kumiko_django import JobContext, current_tenant_id, signals
from kumiko_django.broker.delivery import Complete, Retry
from kumiko_django.history.models import JobRun
from kumiko_django.run.outcome import Completed, Failed
from kumiko_django.types import ambient
from kumiko_django.types.runinfo import RunInfo
from tests.app.models import Order
from tests.unit.run.deliveries import NAME, RunOne, delivery

pytestmark = pytest.mark.django_db(transaction=True)

ALL = {
    "started": signals.job_started,
    "completed": signals.job_completed,
    "failed": signals.job_failed,
}


class Spy:
    """Notes every signal, with what is on record and ambient at that moment."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.on_record: list[str | None] = []
        self.tenants: list[str | None] = []
        self.threads: list[str] = []

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        receivers = {name: self._receiver(name) for name in ALL}
        for name, receiver in receivers.items():
            ALL[name].connect(receiver)
        yield
        for name, receiver in receivers.items():
            ALL[name].disconnect(receiver)

    def _receiver(self, name: str) -> Any:
        def receive(**arguments: Any) -> None:
            arguments.pop("signal")
            self.calls.append((name, arguments))
            run = JobRun.objects.filter(id=arguments["run"].run_id).first()
            self.on_record.append(None if run is None else run.status)
            self.tenants.append(current_tenant_id())
            self.threads.append(threading.current_thread().name)

        return receive


@pytest.fixture
def spy() -> Iterator[Spy]:
    made = Spy()
    with made.connected():
        yield made


def test_a_completed_run_is_told_twice(spy: Spy, run_one: RunOne) -> None:
    """B088, B124, B125, B180, B219, B220: in order, around the handler; the end after its
    record."""
    order: list[str] = []

    def handler(payload: Any, ctx: JobContext) -> dict[str, int]:
        order.extend(name for name, _ in spy.calls)
        ctx.log.info("a line", n=1)
        return {"n": 1}

    run_one(handler)
    assert order == ["started"], "the handler begins after the start has been told"
    (_, start), (name, end) = spy.calls
    run = JobRun.objects.get()
    assert set(start) == {"sender", "run"}
    assert set(end) == {"sender", "run", "outcome", "logs"}
    assert name == "completed"
    assert start["run"] == RunInfo(
        job_name=NAME, job_id="job-1", run_id=run.id, tenant_id="acme", attempt=1, final=True,
        duration=None, error=None, message_key=None,
    )  # fmt: skip
    duration = end["run"].duration
    assert isinstance(duration, dt.timedelta)
    assert end["run"] == dataclasses.replace(start["run"], duration=duration)
    assert round(duration.total_seconds() * 1000) == run.duration_ms
    assert end["outcome"] == Completed({"n": 1})
    assert [(line.level, line.text) for line in end["logs"]] == [("info", 'a line {"n": 1}')]
    assert start["sender"] is end["sender"]
    assert start["sender"].qualified_name == NAME
    assert spy.on_record[-1] == "completed"
    assert spy.tenants == ["acme", "acme"]
    assert all(thread.startswith("kumiko-handler-") for thread in spy.threads)


def test_a_failed_attempt_is_told_with_its_error(spy: Spy, run_one: RunOne) -> None:
    """B129, B221: every attempt, not only the last."""

    def handler(payload: Any, ctx: JobContext) -> None:
        ctx.log.warning("before")
        raise ValueError("password=hunter22")

    settlement = run_one(handler, delivery(job_name=NAME, attempt=2, max_attempts=3))
    assert isinstance(settlement, Retry)
    (_, start), (name, end) = spy.calls
    assert (name, start["run"].final, end["run"].final, end["run"].attempt) == (
        "failed", False, False, 2,
    )  # fmt: skip
    assert end["run"].error == "ValueError: password=***"
    outcome = end["outcome"]
    assert isinstance(outcome, Failed)
    assert (outcome.error, outcome.final, outcome.retry_ms) == (end["run"].error, False, 1000)
    assert [line.message for line in end["logs"]] == ["before", end["run"].error]
    assert spy.on_record[-1] == "failed"


def test_a_refused_job_is_told_as_failed(spy: Spy, run_one: RunOne, settings: Settings) -> None:
    """B207: without a definition there is no sender."""
    settings.KUMIKO = {**settings.KUMIKO, "UNKNOWN_JOB_AGE": 0}
    run_one(lambda payload, ctx: 1, delivery(job_name="testapp:job:nothing", max_attempts=3))
    ((name, end),) = spy.calls
    assert (name, end["sender"], end["run"].final) == ("failed", None, True)
    assert (end["run"].job_name, end["run"].tenant_id) == ("testapp:job:nothing", "acme")


def test_a_run_that_is_given_back_has_no_end_to_tell(spy: Spy, run_one: RunOne) -> None:
    run_one(lambda payload, ctx: 1, interrupt=True)
    assert [name for name, _ in spy.calls] == ["started"]


@pytest.mark.parametrize(
    "error",
    [
        ValueError("v"),
        SystemExit(1),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
        GeneratorExit(),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("signal", ALL.values(), ids=ALL)
def test_a_receiver_that_raises_changes_nothing(
    error: BaseException, signal: Signal, run_one: RunOne
) -> None:
    """P24, P25, P26, B128, B131: neither the outcome nor the error, nor the end of the loop."""

    def broken(**arguments: Any) -> None:
        raise error

    def handler(payload: Any, ctx: JobContext) -> str:
        if signal is signals.job_failed:
            raise LookupError("the handler's own")
        return "fine"

    signal.connect(broken)
    try:
        settlement = run_one(handler)
    finally:
        signal.disconnect(broken)
    run = JobRun.objects.get()
    if signal is signals.job_failed:
        assert run.error == "LookupError: the handler's own"
    else:
        assert settlement == Complete("fine")
        assert run.status == "completed"


def test_receivers_use_the_orm_and_leave_nothing_behind(run_one: RunOne) -> None:
    """user-needs 22, P106: they run in a thread, in the scope of the run, on a clean connection."""
    seen: list[Any] = []

    def receive(run: RunInfo, **arguments: Any) -> None:
        seen.append(
            (
                current_tenant_id(),
                ambient.handler.get(),
                transaction.get_connection().in_atomic_block,
            )
        )
        Order.objects.create(tenant_id=run.tenant_id, number=str(len(seen)))
        transaction.atomic().__enter__()
        Order.objects.create(tenant_id=run.tenant_id, number="never committed")

    for signal in ALL.values():
        signal.connect(receive)
    try:
        run_one(lambda payload, ctx: Order.objects.count())
    finally:
        for signal in ALL.values():
            signal.disconnect(receive)
    assert seen == [("acme", NAME, False)] * 2
    assert sorted(Order.objects.values_list("number", flat=True)) == ["1", "2"]
    assert JobRun.objects.get().result == 1


def test_async_receivers_are_called_too(run_one: RunOne) -> None:
    seen: list[str] = []

    async def receive(run: RunInfo, **arguments: Any) -> None:
        await asyncio.sleep(0)
        seen.append(run.job_id)

    signals.job_completed.connect(receive)
    try:
        run_one(lambda payload, ctx: 1)
    finally:
        signals.job_completed.disconnect(receive)
    assert seen == ["job-1"]


def test_without_receivers_a_run_needs_none(run_one: RunOne) -> None:
    """B223."""
    assert run_one(lambda payload, ctx: 1) == Complete(1)
