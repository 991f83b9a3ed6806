"""Logs and progress of a run that lives (B176-B180, P77)."""

from __future__ import annotations

import threading
from typing import Any

from kumiko_django import JobContext, dispatch
from kumiko_django.history.models import JobRun
from kumiko_django.run.logbook import MAX_LINES
from tests.app.jobs import logs_much
from tests.app.models import Order
from tests.helpers.waiting import wait_until
from tests.integration.worker.host_thread import (
    Define,
    StartHost,
    ended_run,
    ended_runs,
    found,
    lines_of,
)


def test_lines_and_progress_are_there_before_the_end(host: StartHost, define: Define) -> None:
    """B161, P77, P83: an operator reads along."""
    go = threading.Event()

    def waits(payload: dict[str, Any], ctx: JobContext) -> None:
        ctx.log.info("first", n=1)
        ctx.log.child(part="b").warning("second")
        ctx.progress(done=1, total=2, message="half")
        go.wait(20)
        ctx.log.error("third")
        ctx.progress(done=2, total=2)

    job = define(waits)
    host("worker")
    job_id = dispatch(job, tenant_id="acme").job_id
    with_progress = JobRun.objects.filter(queue_job_id=job_id, progress__isnull=False)
    run = found(wait_until(with_progress.all().first, description="its progress is on record"))
    assert (run.status, run.progress) == ("running", {"done": 1, "total": 2, "message": "half"})
    assert lines_of(run.id) == [("info", "first"), ("warn", "second")]
    assert [line.data for line in run.logs.all()] == [{"n": 1}, {"part": "b"}]
    go.set()
    done = ended_run(job_id)
    assert (done.status, done.progress) == ("completed", {"done": 2, "total": 2})
    assert lines_of(run.id)[-1] == ("error", "third")


def test_a_log_is_in_order_capped_and_ends_with_the_error(host: StartHost, define: Define) -> None:
    """B176, B179, P81."""

    def chatters(payload: dict[str, Any], ctx: JobContext) -> None:
        for number in range(MAX_LINES + 100):
            ctx.log.info("line", number=number)
            ctx.log.debug("unseen")
        raise ValueError("at last")

    job = define(chatters)
    host("worker")
    run = ended_run(dispatch(job, tenant_id="acme").job_id, timeout=30)
    lines = list(run.logs.order_by("number"))
    assert [line.number for line in lines] == list(range(1, MAX_LINES + 3))
    assert [line.data["number"] for line in lines[:MAX_LINES]] == list(range(MAX_LINES))
    assert lines[-2].message.startswith("The log ends here")
    assert (lines[-1].level, lines[-1].message) == ("error", "ValueError: at last")


def test_many_lines_of_several_runs_stay_with_their_runs(host: StartHost) -> None:
    host("worker", concurrency=4)
    ids = [logs_much.dispatch({"lines": 60 + n}, tenant_id="acme").job_id for n in range(4)]
    for n, job_id in enumerate(ids):
        (run,) = ended_runs(job_id)
        assert run.progress == {"done": 60 + n, "total": 60 + n}
        numbers = [line.data["number"] for line in run.logs.order_by("number")]
        assert numbers == list(range(1, 61 + n))


def test_what_a_run_is_about_is_found_by_it(host: StartHost, define: Define) -> None:
    """user-needs 50: by object, in an indexed column or not at all; here the column."""

    def about(payload: dict[str, Any], ctx: JobContext) -> None:
        order = Order.objects.create(tenant_id=ctx.tenant_id, number="7")
        ctx.about(order)

    def about_text(payload: dict[str, Any], ctx: JobContext) -> None:
        ctx.about("x" * 1000)

    jobs = define(about), define(about_text)
    host("worker")
    first, second = (ended_run(dispatch(job, tenant_id="acme").job_id) for job in jobs)
    assert first.object_ref == f"testapp.order:{Order.objects.get().pk}"
    assert second.object_ref == "x" * 255
