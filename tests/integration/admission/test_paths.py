"""Other ways into the queue than a dispatch pass the same door (B055, B056, B060, P08)."""

from __future__ import annotations

from typing import Any

import pytest

from kumiko_django import On, dispatch, emit, tenant_scope
from kumiko_django.history.models import JobRun
from tests.helpers.queues import QueueState
from tests.helpers.waiting import wait_until
from tests.integration.admission.kept import Kept
from tests.integration.admission.test_running import Watch
from tests.integration.worker.host_thread import Define, StartHost

NAME = "testapp:job:works"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("options", "reason"),
    [({"concurrency": "skip"}, "skipped"), ({"max_per_tenant": 1}, "skipped:max-per-tenant")],
)
def test_an_event_does_not_start_a_second_one(
    options: dict[str, Any], reason: str, define: Define, queue: QueueState
) -> None:
    """B055, B059: skipped, on record, and the other jobs of the event go on."""
    define(Watch(), name="works", trigger=On("happened"), **options)
    define(Watch(), name="other", trigger=On("happened"))
    with tenant_scope("acme"):
        answers = [answer.status for _ in range(2) for answer in emit("happened", {"n": 1})]
    assert answers == ["queued", "queued", "skipped", "queued"]
    row = JobRun.objects.get()
    assert (row.job_name, row.status, row.reason) == (NAME, "skipped", reason)
    assert (row.trigger, row.attempt, row.start) == ("happened", 0, 0)


def test_children_of_a_fan_out_have_the_rules_and_their_wrapper_has_none(
    define: Define, host: StartHost, queue: QueueState, kept: Kept, tenants: tuple[str, ...]
) -> None:
    """B060: a tenant whose cap is reached has its child all the same, which waits its turn."""
    watch = Watch()
    watch.gate.clear()
    define(watch, name="works", per_tenant=True, max_per_tenant=1)
    with tenant_scope("acme"):
        dispatch(NAME, {"number": 0})
    host("worker", concurrency=10)
    wait_until(lambda: watch.running == 1, description="the first one runs")
    dispatch(NAME, {"number": 1})
    wait_until(
        lambda: watch.running == len(tenants) and len(kept.parked(f"cap:{NAME}:acme")) == 1,
        description="the other tenants' children run, that of acme is parked",
    )
    watch.gate.set()
    wait_until(lambda: not queue.pending(), description="all is done")
    assert sorted(watch.seen) == [0, *[1] * len(tenants)]
    wait_until(lambda: not kept.left(), description="nothing is kept")
