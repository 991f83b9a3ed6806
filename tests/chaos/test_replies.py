"""The reply to the settling of a job is lost: what was done is not done again, nor called lost.

The worker reaches Redis through a proxy that loses one reply (``replies``), and cannot know whether
the queue was told. The other worker reaches it directly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kumiko_django import dispatch
from tests.chaos import SETTINGS
from tests.chaos.evidence import Evidence, Row
from tests.chaos.jobs import JOBS
from tests.chaos.replies import LosingProxy, losing_proxy
from tests.helpers.fixtures import RunJobsFactory
from tests.helpers.processes import RunJobs
from tests.helpers.valkey import Valkey
from tests.helpers.waiting import wait_until

ENDS: dict[str, tuple[list[Row], int]] = {
    "work": ([("completed", True, 1, 1)], 1),
    "work-async": ([("completed", True, 1, 1)], 1),
    "fails": ([("failed", True, 1, 1)], 1),
    "fails-once": ([("failed", False, 1, 1), ("completed", True, 2, 2)], 2),
    "fails-once-later": ([("failed", False, 1, 1), ("completed", True, 2, 2)], 2),
}
RECORDS = ":unrecorded"


@pytest.fixture
def proxy(own_valkey: Valkey) -> Iterator[LosingProxy]:
    with losing_proxy(own_valkey.port) as between:
        yield between


@pytest.fixture
def evidence(own_valkey: Valkey, queue_prefix: str) -> Iterator[Evidence]:
    with own_valkey.client() as client:
        yield Evidence(client, queue_prefix)


def start(runjobs: RunJobsFactory, url: str = "", **options: Any) -> RunJobs:
    env = {"DJANGO_SETTINGS_MODULE": SETTINGS, "KUMIKO_TEST_RECOVERY_SECONDS": "0.5"}
    env |= {"REDIS_URL": url} if url else {}
    return runjobs("worker", env=env, **options)


def send(name: str, **payload: Any) -> str:
    return dispatch(JOBS[name], payload, tenant_id="acme").job_id


def wait_lost(proxy: LosingProxy) -> None:
    wait_until(proxy.lost.is_set, description="the reply is lost")


def ended(rows: list[Row]) -> list[Row]:
    """The rows, once there are some and none of them is that of a run that goes on."""
    return [] if "running" in [row[0] for row in rows] else rows


@pytest.mark.parametrize("name", ENDS)
def test_a_settled_job_whose_reply_is_lost_is_recorded_as_it_ended(
    name: str, proxy: LosingProxy, runjobs: RunJobsFactory, evidence: Evidence
) -> None:
    """bullmq-python 1.11, design 9: told again, the queue refuses; the record beside it stands."""
    expected, calls = ENDS[name]
    worker = start(runjobs, proxy.url)
    proxy.lose_reply_to("EVALSHA", RECORDS)
    job_id = send(name)
    wait_lost(proxy)
    evidence.wait_rows(job_id, expected)
    assert evidence.losses([job_id]) == {job_id: 0}
    assert evidence.calls() == {job_id: calls}
    assert worker.running
    assert "could not be settled" not in worker.output()


def test_the_job_fetched_with_a_lost_reply_is_not_lost(
    proxy: LosingProxy, runjobs: RunJobsFactory, evidence: Evidence
) -> None:
    """bullmq-python 5: nobody knows that it was fetched; it runs, soon or when its lock is out."""
    ids = [send("work", ms=50) for _ in range(3)]
    proxy.lose_reply_to("EVALSHA", RECORDS)
    start(runjobs, proxy.url, concurrency=1)
    wait_lost(proxy)
    wait_until(
        lambda: sorted(evidence.queue.completed) == sorted(ids),
        description="all are completed", timeout=15,
    )  # fmt: skip
    losses = evidence.losses(ids)
    for job_id in ids:
        rows = wait_until(lambda: ended(evidence.rows(job_id)), description="all is recorded")  # noqa: B023
        assert [row[:3] for row in rows] == [
            *[("lost", False, 1)] * losses[job_id], ("completed", True, 1),
        ]  # fmt: skip
    assert losses[ids[0]] == 0
    assert evidence.calls() == dict.fromkeys(ids, 1)


# Not where a retry follows at once: the worker may fetch it just before it is cut off.
@pytest.mark.parametrize("name", sorted(set(ENDS) - {"fails-once"}))
def test_a_worker_cut_off_after_it_told_the_queue_overwrites_nothing(
    name: str, proxy: LosingProxy, runjobs: RunJobsFactory, evidence: Evidence
) -> None:
    """Design 9: meanwhile another worker has written its record and dropped it from the queue, so
    that on its return neither the job nor the record is there to show that it was its own end."""
    expected, calls = ENDS[name]
    cut_off = start(runjobs, proxy.url)
    proxy.lose_reply_to("EVALSHA", RECORDS, then_cut=True)
    job_id = send(name)
    wait_lost(proxy)
    start(runjobs)
    wait_until(
        lambda: len(evidence.rows(job_id)) == len(expected) and not evidence.unrecorded(),
        description="the other worker has written it", timeout=15,
    )  # fmt: skip
    proxy.restore()
    follower = send("work")
    evidence.wait_rows(follower, [("completed", True, 1, 1)])
    cut_off.terminate()
    assert cut_off.wait() == 0, cut_off.output()
    assert evidence.rows(job_id) == expected
    assert evidence.losses([job_id]) == {job_id: 0}
    assert evidence.calls() == {job_id: calls, follower: 1}
