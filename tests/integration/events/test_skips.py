"""An event whose job is not let in: on record, whoever has announced it (design 6, B055)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from django.dispatch import Signal

from kumiko_django import JobDefinition, On, bind_signal, signals
from kumiko_django.history.models import JobRun
from tests.helpers.queues import QueueState
from tests.integration.events.listeners import Emit, both, idle
from tests.integration.worker.host_thread import Define

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def lets_in_one(define: Define) -> JobDefinition:
    """A job that listens to the event ``a``, one at a time."""
    return define(idle, name="one", trigger=On("a"), concurrency="skip")


@pytest.fixture
def heard() -> Iterator[list[tuple[str, str, str]]]:
    """What ``job_skipped`` told: job, tenant, reason."""
    told: list[tuple[str, str, str]] = []

    def hear(run: Any, reason: str, **_: Any) -> None:
        told.append((run.job_name, run.tenant_id, reason))

    signals.job_skipped.connect(hear)
    yield told
    signals.job_skipped.disconnect(hear)


def _announce(signal: Signal) -> None:
    signal.send(sender=None)


def _announce_on_commit(signal: Signal) -> None:
    with transaction.atomic():
        signal.send(sender=None)


def _announce_from_async(signal: Signal) -> None:
    async_to_sync(signal.asend)(sender=None)


@pytest.mark.parametrize("announce", [_announce, _announce_on_commit, _announce_from_async])
@pytest.mark.parametrize("is_async", [False, True], ids=["function", "coroutine"])
def test_one_that_a_signal_has_announced(
    announce: Callable[[Signal], None],
    is_async: bool,
    lets_in_one: JobDefinition,
    queue: QueueState,
    heard: list[tuple[str, str, str]],
) -> None:
    """Nobody sees the answer, so a row tells, and the signal once."""
    signal = Signal()

    async def payload() -> dict[str, int]:
        return {"n": 1}

    given = payload if is_async else lambda: {"n": 1}
    binding = bind_signal(signal, "a", payload=given, tenant_id="acme")
    try:
        for _ in range(2):
            announce(signal)
    finally:
        binding.disconnect()
    assert queue.pending() == 1
    row = JobRun.objects.get()
    assert (row.job_name, row.status, row.reason) == ("testapp:job:one", "skipped", "skipped")
    assert (row.tenant_id, row.trigger, row.payload) == ("acme", "a", {"n": 1})
    assert heard == [("testapp:job:one", "acme", "skipped")]


@both
def test_one_that_was_emitted(
    send: Emit, lets_in_one: JobDefinition, heard: list[tuple[str, str, str]]
) -> None:
    """The caller has the answer as well."""
    answers = [send("a", tenant_id="acme")[0] for _ in range(2)]
    assert [(bool(one), one.reason) for one in answers] == [(True, None), (False, "skipped")]
    row = JobRun.objects.get()
    assert (row.queue_job_id, row.reason) == (answers[1].job_id, "skipped")
    assert heard == [("testapp:job:one", "acme", "skipped")]
