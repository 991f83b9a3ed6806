"""A worker as its operators see it: spans, numbers and log records (B208-B211, P84-P86)."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from pytest_django import Settings

from kumiko_django import JobContext, dispatch
from kumiko_django.definitions.registry import registry
from kumiko_django.history.models import JobRun
from kumiko_django.observability import names
from kumiko_django.observability.guarded import GuardedMeter
from kumiko_django.observability.logs import FIELDS, RunContextFilter
from kumiko_django.observability.memory import InMemoryMeter, InMemoryTracer
from kumiko_django.worker.reports import Reports, tell_successes
from tests.app.jobs import record
from tests.helpers.waiting import wait_until
from tests.integration.worker.host_thread import Define, StartHost, ended_run

MINE = "app.mine"

pytestmark = pytest.mark.once


@pytest.fixture
def meter(settings: Settings) -> InMemoryMeter:
    made = InMemoryMeter()
    settings.KUMIKO = {**settings.KUMIKO, "METER": made}
    return made


@pytest.fixture
def tracer(settings: Settings) -> InMemoryTracer:
    made = InMemoryTracer()
    settings.KUMIKO = {**settings.KUMIKO, "TRACER": made}
    return made


class Records(logging.Handler):
    """A host's handler, with the filter."""

    def __init__(self) -> None:
        super().__init__()
        self.addFilter(RunContextFilter())
        self.seen: dict[str, dict[str, str]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        fields = {field: getattr(record, field) for field in FIELDS}
        self.seen[record.getMessage()] = fields


@pytest.fixture
def records() -> Iterator[Records]:
    handler = Records()
    loggers = [logging.getLogger(name) for name in (MINE, "kumiko_django.run")]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    yield handler
    for logger in loggers:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)


def test_a_chain_of_jobs_is_one_trace(
    host: StartHost, define: Define, tracer: InMemoryTracer
) -> None:
    """B137, B138, B168: request, dispatch, run, dispatch, run; sync and async handlers."""

    def first(payload: dict[str, Any], ctx: JobContext) -> str:
        return ctx.dispatch(second).job_id

    async def last(payload: dict[str, Any], ctx: JobContext) -> None:
        with tracer.span("mine"):
            await asyncio.sleep(0)

    second = define(last, name="last")
    start = define(first, name="first")
    host("worker")
    with tracer.span("request"):
        job_id = dispatch(start, tenant_id="acme").job_id
    runs = [ended_run(job_id)]
    runs.append(ended_run(str(runs[0].result)))
    assert [span.name for span in tracer.spans] == [
        "request", "job.dispatch", "job.execute", "job.dispatch", "job.execute", "mine",
    ]  # fmt: skip
    for above, below in zip(tracer.spans, tracer.spans[1:], strict=False):
        assert below.parent == above.context, f"{below.name} below {above.name}"
    assert {run.trace_id for run in runs} == {tracer.spans[0].context.trace_id}
    wait_until(lambda: all(span.ended for span in tracer.spans), description="all have ended")


def in_thread(payload: dict[str, Any], ctx: JobContext) -> None:
    logging.getLogger(MINE).info("sync %s", payload["n"])
    raise ValueError("on purpose")


async def on_loop(payload: dict[str, Any], ctx: JobContext) -> None:
    logger = logging.getLogger(MINE)
    logger.info("async %s", payload["n"])

    async def task() -> None:
        logger.info("task %s", payload["n"])

    await asyncio.create_task(task())
    await asyncio.to_thread(logger.info, "thread %s", payload["n"])
    await sync_to_async(logger.info)("sync_to_async %s", payload["n"])


def test_what_is_logged_in_a_run_says_in_which(
    host: StartHost, define: Define, records: Records
) -> None:
    """B130, B134: by the handler, its threads and tasks, and by us about the run."""
    jobs = {"sync": define(in_thread), "async": define(on_loop)}
    host("worker", concurrency=4)
    ids = {
        (kind, n): dispatch(job, {"n": n}, tenant_id=tenant).job_id
        for kind, job in jobs.items()
        for n, tenant in enumerate(("acme", "globex"))
    }
    runs = {key: ended_run(job_id) for key, job_id in ids.items()}
    for (kind, n), run in runs.items():
        said = {
            "run_id": str(run.id), "job_name": run.job_name, "job_id": run.queue_job_id,
            "tenant_id": run.tenant_id, "correlation_id": run.correlation_id,
            "request_id": run.correlation_id,
        }  # fmt: skip
        lines = ["sync"] if kind == "sync" else ["async", "task", "thread", "sync_to_async"]
        for line in lines:
            assert records.seen[f"{line} {n}"] == said, line
        (about,) = [text for text in records.seen if f"({run.queue_job_id})" in text]
        assert records.seen[about] == said
        assert ("failed on attempt 1" in about) == (kind == "sync")
    logging.getLogger(MINE).info("outside")
    assert records.seen["outside"] == dict.fromkeys(FIELDS, "")


def test_what_a_worker_tells_the_meter(
    host: StartHost, define: Define, meter: InMemoryMeter
) -> None:
    """B208-B210, P84, P85: depths at once and for its lanes only; jobs that never ran, too."""
    go = threading.Event()

    def waits(payload: dict[str, Any], ctx: JobContext) -> None:
        go.wait(20)

    job = define(waits, name="waits")
    define(waits, name="never-runs")
    define(waits, name="of-another-lane", lane="api")
    dispatch(job, tenant_id="acme", delay=3600)
    assert meter.series(names.QUEUE_DEPTH.name) == [], "B209: nobody else tells it"
    try:
        host("worker", concurrency=1)
        job_id = dispatch(job, tenant_id="acme").job_id
        depth = names.QUEUE_DEPTH.name
        wait_until(
            lambda: meter.value(depth, lane="worker", state="delayed") == 1,
            description="the depth is told right after the start",
        )
        assert {one["lane"] for one in meter.series(depth)} == {"worker"}
        stamp = names.LAST_SUCCESS.name
        wait_until(lambda: meter.value(stamp, job="testapp:job:never-runs") == 0,
                   description="a job that never ran is seen")  # fmt: skip
        assert meter.value(stamp, job="testapp:job:of-another-lane") is None
    finally:
        go.set()
    assert ended_run(job_id).status == "completed"
    wait_until(lambda: (meter.value(stamp, job="testapp:job:waits") or 0) > time.time() - 60,
               description="its success is stamped")  # fmt: skip
    declared = {metric.name: set(metric.labels) for metric in names.METRICS}
    for name in meter.names:
        assert all(set(one) == declared[name] for one in meter.series(name)), name


def test_without_a_meter_nothing_looks(host: StartHost) -> None:
    """B209."""
    host("worker")
    ended_run(record.dispatch({}, tenant_id="acme").job_id)
    assert "kumiko-reports" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.django_db(transaction=True)
def test_the_last_success_comes_from_the_history(meter: InMemoryMeter) -> None:
    """P84: a restart, or a replica that has run nothing, does not look like a failure."""
    run = JobRun.objects.create(
        job_name="testapp:job:record", lane="worker", queue_job_id="1", attempt=1, max_attempts=1,
        start=1, tenant_id="acme", status="completed", final=True,
        queue_created_at="2026-01-01T00:00Z", enqueued_at="2026-01-01T00:00Z",
        started_at="2026-01-01T00:00Z", finished_at="2026-01-01T00:00:07.5Z",
    )  # fmt: skip
    run.refresh_from_db()
    tell_successes(GuardedMeter(meter), ["worker"])
    assert run.finished_at is not None
    told = meter.value(names.LAST_SUCCESS.name, job="testapp:job:record")
    assert told == run.finished_at.timestamp()
    of_worker = {one.qualified_name for one in registry.all() if one.lane == "worker"}
    assert {one["job"] for one in meter.series(names.LAST_SUCCESS.name)} == of_worker


def test_a_redis_that_is_away_is_counted_and_looked_at_again(
    meter: InMemoryMeter, settings: Settings, caplog: pytest.LogCaptureFixture, db: None
) -> None:
    """B237, P86: no noise, and no two polls at once: one thread does it."""
    at_home = settings.KUMIKO
    settings.KUMIKO = {**at_home, "REDIS_URL": "redis://127.0.0.1:1/0"}
    reports = Reports(["worker"], interval=0.01)
    with caplog.at_level(logging.INFO, "kumiko_django"):
        reports.open()
        try:
            wait_until(lambda: (meter.value(names.POLL_ERRORS.name) or 0) >= 2,
                       description="two polls have failed")  # fmt: skip
            settings.KUMIKO = at_home
            wait_until(lambda: meter.series(names.QUEUE_DEPTH.name), description="it is back")
        finally:
            reports.close()
    assert not caplog.records
