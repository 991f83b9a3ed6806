"""A worker killed in the middle of a fan-out (Must hold: every tenant has exactly one child)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pytest_django import Settings

from kumiko_django import JobContext, dispatch
from kumiko_django.history.models import JobRun
from tests.app.models import Effect
from tests.app.tenants import many_tenants, some_tenants
from tests.helpers.fixtures import QueueStateFactory, RunJobsFactory
from tests.helpers.processes import RunJobs
from tests.helpers.queues import QueueState
from tests.helpers.waiting import wait_until
from tests.integration.worker.conftest import define  # noqa: F401 - a fixture
from tests.integration.worker.extra import SETTINGS
from tests.integration.worker.host_thread import Define, ended_runs

ENV = {"DJANGO_SETTINGS_MODULE": SETTINGS}
AT_LEAST_ADDED = 1000
"""So many children are there when the worker is killed."""


def handler(payload: dict[str, Any], ctx: JobContext) -> None:
    """Stands here for that of the worker's process."""


def end_in_the_middle(worker: RunJobs, signal: str, queue: QueueState) -> None:
    """End a worker while it fans out."""
    wait_until(
        lambda: queue.client.zcard(queue.key("delayed")) >= AT_LEAST_ADDED,
        description="the fan-out has come to its middle",
        interval=0.001,
    )
    if signal == "SIGKILL":
        worker.kill()
        assert queue.client.zcard(queue.key("delayed")) < 9_999, "killed in the middle"
    else:
        worker.terminate()
        assert worker.wait() == 0, worker.output()


@pytest.mark.once
@pytest.mark.parametrize("signal", ["SIGKILL", "SIGTERM"])
def test_ten_thousand_tenants_have_one_child_each_whenever_the_worker_ends(
    signal: str,
    runjobs: RunJobsFactory,
    settings: Settings,
    queue_state: QueueStateFactory,
    define: Define,  # noqa: F811
) -> None:
    """B066, P39: killed, or stopped without any grace, and taken up by another worker.

    The children are not due, but for the first, so that all can be counted. Each names a run of the
    wrapper that is on record.
    """
    settings.KUMIKO = {**settings.KUMIKO, "LOCK_SECONDS": 1.0, "TENANTS": many_tenants}
    define(handler, name="each-tenant-later", app_label="extra", per_tenant=True)
    queue = queue_state()
    first = runjobs("worker", env=ENV, grace=0)
    wrapper = dispatch("extra:job:each-tenant-later", {"n": 1}).job_id
    end_in_the_middle(first, signal, queue)
    runjobs("worker", env=ENV)
    runs = ended_runs(wrapper, 2, timeout=40)
    assert [run.status for run in runs] == [
        "lost" if signal == "SIGKILL" else "interrupted", "completed",
    ]  # fmt: skip
    result = runs[-1].result or {}
    assert result["planned"] == 10_000
    assert result["already_there"] >= AT_LEAST_ADDED
    assert result["enqueued"] + result["already_there"] == 10_000
    children = [job for job in queue.jobs() if job.name == "extra:job:each-tenant-later"]
    assert Counter(job.data["_tenantId"] for job in children) == Counter(many_tenants())
    parents = Counter(job.data["_parentRunId"] for job in children)
    assert set(parents) <= {str(run.id) for run in runs}
    assert parents[str(runs[0].id)] >= AT_LEAST_ADDED


def test_every_tenant_runs_once_though_the_worker_is_killed_twice(
    runjobs: RunJobsFactory,
    settings: Settings,
    define: Define,  # noqa: F811
) -> None:
    """B066: what has run is not run again by the fan-out that is done again."""
    settings.KUMIKO = {**settings.KUMIKO, "LOCK_SECONDS": 1.0, "TENANTS": some_tenants}
    define(handler, name="each-tenant", app_label="extra", per_tenant=True)
    wrapper = dispatch("extra:job:each-tenant").job_id
    for wanted in (1, 100):
        worker = runjobs("worker", env=ENV, concurrency=2)
        wait_until(
            lambda: Effect.objects.count() >= wanted,  # noqa: B023
            description="children have run",
            timeout=30,
            interval=0.002,
        )
        worker.kill()
    runjobs("worker", env=ENV)
    runs = JobRun.objects.filter(queue_job_id=wrapper)
    wait_until(
        lambda: runs.filter(status="completed").exists(),
        description="the fan-out has come to its end",
        timeout=40,
    )
    children_ended = JobRun.objects.filter(parent__in=runs.values("id"), final=True)
    wait_until(lambda: children_ended.count() == 300, description="all have run", timeout=40)
    assert Counter(children_ended.values_list("tenant_id", flat=True)) == Counter(some_tenants())
    assert set(children_ended.values_list("status", flat=True)) == {"completed"}
    assert not JobRun.objects.filter(status="running").exists()
