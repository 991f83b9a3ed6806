"""Dispatched here, run there: transactions, order, time and retention with a real worker."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest
from django.db import transaction
from pytest_django import Settings

from kumiko_django import dispatch, dispatch_many
from tests.app.jobs import (
    chain,
    chain_async,
    chain_in_transaction,
    find_order,
    quiet,
    record,
    record_async,
)
from tests.app.models import Effect, Order
from tests.helpers.fixtures import QueueStateFactory, RunJobsFactory
from tests.helpers.waiting import wait_until


class Oops(Exception):
    """Why a transaction is rolled back."""


def effects(key: str) -> int:
    return Effect.objects.filter(key=key).count()


def wait_for(key: str) -> None:
    wait_until(lambda: effects(key) == 1, description=f"the job {key} has run")


def test_a_job_sees_the_row_that_it_is_about(runjobs: RunJobsFactory) -> None:
    """user-needs 1: 500 times of 500, and never one of a transaction that was rolled back."""
    runjobs("worker", concurrency=8)
    rolled_back: list[str] = []
    for number in range(600):
        with contextlib.suppress(Oops), transaction.atomic():
            sent = dispatch(find_order, {"number": str(number)}, tenant_id="acme")
            Order.objects.create(tenant_id="acme", number=str(number))
            if number % 6 == 5:
                rolled_back.append(sent.job_id)
                raise Oops
    wait_until(lambda: effects("order") >= 500, description="500 jobs have run", timeout=60)
    seen = Effect.objects.filter(key="order")
    assert [effect.value for effect in seen] == [True] * 500
    assert len(rolled_back) == 100
    assert not seen.filter(job_id__in=rolled_back).exists()


def test_a_handler_dispatches(runjobs: RunJobsFactory, queue_state: QueueStateFactory) -> None:
    """P64, user-needs 3, B159, B168: after the commit of its own transaction, for its tenant."""
    runjobs("worker")
    for number, rollback in (("1", False), ("2", True)):
        payload = {"number": number, "rollback": rollback}
        dispatch(chain_in_transaction, payload, tenant_id="globex", triggered_by="7")
    for chained in (chain, chain_async):
        dispatch(chained, {"payload": {"key": chained.__name__}}, tenant_id="globex")
    wait_until(lambda: queue_state("worker").pending() == 0, description="all have run")
    assert effects("rolled-back") == 1
    (found,) = Effect.objects.filter(key="order")
    assert (found.value, found.tenant_id) == (True, "globex")
    for key in ("chain", "chain_async"):
        effect = Effect.objects.get(key=key)
        assert effect.tenant_id == "globex"
        assert Effect.objects.filter(key="chained", value=effect.job_id).count() == 1


@pytest.mark.once
def test_the_order_of_execution(runjobs: RunJobsFactory) -> None:
    """B044, design 3: high, newest first; normal in their order; then numbers, lower first."""
    wanted: list[tuple[str, Any]] = [
        ("low", "low"), ("normal 1", None), ("7", 7), ("high 1", "high"), ("normal 2", "normal"),
        ("1", 1), ("normal 3", 0), ("high 2", "high"), ("7 again", 7),
    ]  # fmt: skip
    for key, priority in wanted:
        record.dispatch({"key": key}, tenant_id="acme", priority=priority)
    runjobs("worker", "--drain", concurrency=1, ready=False).wait(timeout=60)
    assert list(Effect.objects.values_list("key", flat=True)) == [
        "high 2", "high 1", "normal 1", "normal 2", "normal 3", "1", "7", "7 again", "low",
    ]  # fmt: skip


@pytest.mark.once
def test_due_later(runjobs: RunJobsFactory) -> None:
    """design 3: not before its time, and then soon."""
    runjobs("worker")
    began = time.time()
    for job, key in ((record, "sync"), (record_async, "async")):
        job.dispatch({"key": key}, tenant_id="acme", delay=1.5)
    dispatch_many(record, [{"key": "at once"}], tenant_id="acme")
    wait_until(lambda: effects("at once") == 1, description="the other job has run")
    assert effects("sync") == effects("async") == 0
    for key in ("sync", "async"):
        wait_for(key)
        started = Effect.objects.get(key=key).created_at.timestamp()
        assert 1.5 <= started - began < 5


@pytest.mark.once
def test_finished_jobs_leave_the_queue_by_age(
    runjobs: RunJobsFactory, settings: Settings, queue_state: QueueStateFactory
) -> None:
    """B090-B092, B094, bullmq-python 1.20: whoever dispatched them, and by age alone."""
    settings.KUMIKO = {**settings.KUMIKO, "COMPLETED_AGE": 2, "FAILED_AGE": 2}
    runjobs("worker")
    queue = queue_state("worker")
    old = [each.job_id for each in dispatch_many(quiet, [{}] * 50, tenant_id="acme")]
    old.append(dispatch(quiet, {}, tenant_id="acme").job_id)
    old.append(dispatch(quiet, {}, tenant_id="acme", delay=0.1, priority="low").job_id)
    wait_until(lambda: len(queue.completed) == len(old), description="all have run")

    def gone() -> bool:
        # The queue sweeps when a job finishes.
        dispatch(quiet, {}, tenant_id="acme")
        return not any(queue.exists(job_id) for job_id in old)

    wait_until(gone, description="the old ones are gone", interval=0.3)
    assert queue.completed, "the young ones are not"


@pytest.mark.once
@pytest.mark.parametrize("send", ["dispatch", "dispatch_many"])
def test_what_is_dispatched_while_the_worker_idles_starts_at_once(
    send: str, runjobs: RunJobsFactory
) -> None:
    """bullmq-python 1.14: the marker wakes a worker that waits, whichever script added the job."""
    runjobs("worker")
    kinds: list[dict[str, Any]] = [{}, {"priority": 3}, {"priority": "high"}, {"delay": 0.05}]
    for number, options in enumerate(kinds):
        key = f"{send}-{number}"
        began = time.time()
        if send == "dispatch":
            dispatch(record, {"key": key}, tenant_id="acme", **options)
        else:
            dispatch_many(record, [{"key": key}], tenant_id="acme", **options)
        wait_for(key)
        assert Effect.objects.get(key=key).created_at.timestamp() - began < 2
