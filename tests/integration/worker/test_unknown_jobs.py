"""Names that no worker here knows: put back for a time, then failed (user-needs 7).

This replaces B206, B207 and P28, as the first page of the design says.
"""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import Any

import pytest
from pytest_django import Settings

from kumiko_django import JobContext
from kumiko_django.broker.carried import UNKNOWN_SINCE
from kumiko_django.definitions.registry import registry
from kumiko_django.history.models import JobRun
from kumiko_django.run.unknown import LONGEST_PAUSE_MS, UnknownJobs
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.waiting import wait_until
from tests.integration.worker.host_thread import (
    Define,
    StartHost,
    add_raw,
    ended_run,
    ended_runs,
)
from tests.unit.run.deliveries import delivery

pytestmark = pytest.mark.once

NAME = "testapp:job:of-the-next-release"
DATA = {"_tenantId": "acme", "_correlationId": "chain-1", "n": 1}
HOUR_MS = 3_600_000


def new_name(payload: dict[str, Any], ctx: JobContext) -> str:
    return f"{payload['n']} {ctx.correlation_id}"


def test_it_waits_for_a_worker_that_knows_it(
    host: StartHost,
    define: Define,
    queue_prefix: str,
    redis_url: str,
    queue_state: QueueStateFactory,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """user-needs 7: visibly waiting, never discarded; then it runs as if nothing had been."""
    queue = f"{queue_prefix}-worker"
    with caplog.at_level(logging.WARNING, "kumiko_django"), registry.isolated():
        old = host("worker")
        ids = add_raw(redis_url, queue, [(NAME, DATA, {"attempts": 3, "backoff": 10})] * 2)
        state = queue_state()
        wait_until(lambda: set(state.delayed) == set(ids), description="they are put back")
        old.stop()
    (told,) = [entry for entry in caplog.messages if NAME in entry]
    assert "put back and looked at again in 1 s, for 3600 s at most" in told
    assert not JobRun.objects.exists(), "what waits has no row"
    assert all(state.job(job_id).attempts_made == 0 for job_id in ids)
    define(new_name, name="of-the-next-release")
    host("worker")
    for job_id in ids:
        run = ended_run(job_id)
        assert (run.status, run.attempt, run.max_attempts, run.result) == (
            "completed", 1, 3, "1 chain-1",
        )  # fmt: skip
        stored = state.job(job_id)
        assert {key: stored.data[key] for key in DATA} == DATA


def test_when_its_time_is_over_it_fails_and_is_on_record(
    host: StartHost, queue_prefix: str, redis_url: str, settings: Settings,
    queue_state: QueueStateFactory,
) -> None:  # fmt: skip
    """B207's visible failure, later: for good, with the reason, and kept in the queue."""
    settings.KUMIKO = {**settings.KUMIKO, "UNKNOWN_JOB_AGE": 1.5}
    host("worker")
    (job_id,) = add_raw(redis_url, f"{queue_prefix}-worker", [(NAME, DATA, {"attempts": 3})])
    (run,) = ended_runs(job_id)
    assert (run.status, run.final, run.attempt, run.payload) == ("failed", True, 1, {"n": 1})
    assert f"No job is called '{NAME}'" in run.error
    assert run.start > 1, "it had been put back"
    wait_until(lambda: job_id in queue_state().failed, description="it has failed")
    assert (run.tenant_id, run.correlation_id) == ("acme", "chain-1")


def pauses(unknown: UnknownJobs, until_ms: int) -> list[int]:
    """How long the job is put back each time, by a clock of its own, until its time is over."""
    found, now, data = [], 1_000_000, dict(DATA)
    while now < until_ms + 1_000_000:
        postponed = unknown.put_back(delivery(job_name=NAME, data=data), now)
        if postponed is None:
            break
        found.append(postponed.delay_ms)
        data[UNKNOWN_SINCE] = 1_000_000
        now += postponed.delay_ms
    return found


def test_the_pauses_grow_up_to_the_end_of_its_time() -> None:
    found = pauses(UnknownJobs(), 2 * HOUR_MS)
    assert found[:4] == [1_000, 1_000, 2_000, 4_000]
    assert all(later >= earlier for earlier, later in pairwise(found[:-1]))
    assert max(found) == LONGEST_PAUSE_MS
    assert sum(found) == HOUR_MS


@pytest.mark.parametrize("since", ["x", -1, True, 10**30, None])
def test_nonsense_in_its_data_begins_anew(since: object) -> None:
    postponed = UnknownJobs().put_back(
        delivery(job_name=NAME, data={**DATA, UNKNOWN_SINCE: since}), 5_000_000
    )
    assert postponed is not None
    assert postponed.delay_ms == 1_000


@pytest.mark.parametrize(
    "values",
    [{"job_name": "testapp:job:record"}, {"data": [1]}, {"queue_failure": "given up"}],
)
def test_what_is_not_put_back(values: dict[str, Any]) -> None:
    """A known name; data that nothing can be noted in; what the queue has given up."""
    assert UnknownJobs().put_back(delivery(**{"job_name": NAME, "data": DATA, **values})) is None
