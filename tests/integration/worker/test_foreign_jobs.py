"""Whatever another client has put into our queue is recorded or dropped, and stops nothing.

All cases of a test go to one worker, and one good job behind them proves that it still works.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from pytest_django import Settings

from kumiko_django import SYSTEM, JobContext, dispatch
from kumiko_django.history.models import JobRun
from tests.app.jobs import record
from tests.app.models import Effect
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.queues import QueueState
from tests.helpers.waiting import wait_until
from tests.integration.worker.host_thread import (
    RETENTION,
    Define,
    StartHost,
    add_raw,
    ended_run,
    ended_runs,
    found,
)

RECORD = "testapp:job:record"
GOOD = {"_tenantId": "acme"}


@pytest.fixture
def queue(queue_prefix: str, raw_redis: redis.Redis) -> Iterator[str]:
    yield f"{queue_prefix}-worker"
    # The suite's own look at what is left behind cannot read the records that these tests break.
    raw_redis.delete(*raw_redis.scan_iter(match=f"bull:{queue_prefix}-*", count=1000))


def _still_works(start: StartHost) -> None:
    worker = start("worker", concurrency=2)
    good = record.dispatch({"key": "good"}, tenant_id="acme", priority="low")
    assert ended_run(good.job_id).status == "completed"
    assert worker.running


# ---------------------------------------------------------------- jobs that are added with the API

REFUSED: dict[str, tuple[str, Any, dict[str, Any], str]] = {
    "unknown name": ("testapp:job:nothing", GOOD, {}, "No job is called 'testapp:job:nothing'"),
    "a wrapper of nothing": ("_perTenant:testapp:job:nothing", GOOD, {}, "No job is called"),
    "a wrapper of a wrapper": (f"_perTenant:_perTenant:{RECORD}", GOOD, {}, "No job is called"),
    "a wrapper for the system": (
        "_perTenant:testapp:job:system-job",
        GOOD,
        {},
        "it cannot run for every tenant",
    ),
    "no tenant": (RECORD, {"a": 1}, {}, "was queued without _tenantId"),
    "a plain tenantId": (RECORD, {"tenantId": "acme"}, {}, "was queued without _tenantId"),
    "an unusable tenant": (RECORD, {"_tenantId": " acme\n"}, {}, "control characters"),
    "a tenant that is too long": (RECORD, {"_tenantId": "x" * 500}, {}, "longer than 128"),
    "a tenant for the system": ("testapp:job:system-job", GOOD, {}, "is a job of the system"),
    "data is a list": (RECORD, [1, 2], {}, "The job data is list, not an object"),
    "data is text": (RECORD, "text", {}, "The job data is str, not an object"),
    "data is null": (RECORD, None, {}, "The job data is NoneType, not an object"),
    "origin is text": (RECORD, {**GOOD, "_writeOrigin": "user"}, {}, "cannot be trusted"),
    "origin of a kind": (RECORD, {**GOOD, "_writeOrigin": {"root": "god"}}, {}, "unknown root"),
    "schema": (
        "testapp:job:typed",
        {**GOOD, "when": "never"},
        {},
        "does not fit its schema: payload.when",
    ),
}


def test_what_no_retry_can_help_is_failed_and_recorded(
    host: StartHost,
    queue: str,
    redis_url: str,
    queue_state: QueueStateFactory,
    settings: Settings,
) -> None:
    """B133, B172, P71, user-needs 24: refused, once, and with the reason.

    So are unknown names, in place of B206, B207 and P28, once their time is over.
    """
    settings.KUMIKO = {**settings.KUMIKO, "UNKNOWN_JOB_AGE": 0}
    attempts = {"attempts": 3, "backoff": {"type": "fixed", "delay": 10}}
    ids = add_raw(
        redis_url,
        queue,
        [(name, data, {**attempts, **opts}) for name, data, opts, _ in REFUSED.values()],
    )
    _still_works(host)
    wait_until(lambda: set(queue_state().failed) == set(ids), description="all have failed")
    faults = {}
    for (case, (name, data, _, expected)), job_id in zip(REFUSED.items(), ids, strict=True):
        (run,) = ended_runs(job_id)
        state = queue_state().job(job_id)
        seen = (run.status, run.final, run.attempt, run.max_attempts, run.job_name)
        payload = {k: v for k, v in data.items() if k[0] != "_"} if isinstance(data, dict) else {}
        if (
            seen != ("failed", True, 1, 3, name)
            or expected not in run.error
            or run.payload != payload
            or state.failed_reason != run.error
            or run.traceback
        ):
            faults[case] = (seen, run.error, run.payload, state.failed_reason)
    assert not faults
    assert Effect.objects.filter(key="record").count() == 0


def test_what_can_be_read_runs(
    host: StartHost, queue: str, redis_url: str, queue_state: QueueStateFactory
) -> None:
    """B073, B074, P92, bullmq-python 1.13, 1.15: odd, and harmless."""
    odd = {
        "_triggerEvent": {"id": 1, "headers": "x"},
        "_traceContext": {"traceId": ""},
        "_correlationId": "line\nbreak",
        "_triggeredById": 7,
        "_unknown": {"deep": [1]},
    }
    cases: list[tuple[str, Any, dict[str, Any]]] = [
        (RECORD, {**GOOD, **odd, "case": "odd"}, {}),
        (RECORD, {**GOOD, "case": "integer id"}, {"jobId": "7"}),
        (RECORD, {"_tenantId": 42, "case": "whole number"}, {}),
        (RECORD, {"_tenantId": SYSTEM, "case": "system"}, {}),
        (RECORD, {**GOOD, "case": "retention"}, {"removeOnComplete": {"age": "soon"}}),
        (RECORD, {**GOOD, "case": "gone"}, {"removeOnComplete": True}),
    ]
    ids = add_raw(redis_url, queue, cases)
    _still_works(host)
    runs = {found(run.payload)["case"]: run for run in (ended_run(job_id) for job_id in ids)}
    assert {case: run.status for case, run in runs.items()} == dict.fromkeys(runs, "completed")
    assert len(runs) == len(cases)
    run = runs["odd"]
    assert (run.triggered_by_id, run.trace_id, run.trigger) == ("7", "", "")
    assert "\n" not in run.correlation_id
    assert (runs["whole number"].tenant_id, runs["system"].tenant_id) == ("42", SYSTEM)
    assert queue_state().exists("7")
    wait_until(lambda: not queue_state().exists(ids[-1]), description="its producer's retention")


def test_stored_backoffs_of_others(
    host: StartHost, queue: str, redis_url: str, queue_state: QueueStateFactory
) -> None:
    """bullmq-python 1.13: an unknown backoff type strands no job; it gets our default."""
    name = "testapp:job:always-fails"
    cases: list[tuple[str, Any, dict[str, Any]]] = [
        (name, GOOD, {"attempts": 2, "backoff": {"type": "fibonacci", "delay": 10}}),
        (name, GOOD, {"attempts": 2, "backoff": 10}),
        (name, GOOD, {"attempts": 2, "backoff": "soon"}),
        (name, GOOD, {"attempts": 2, "backoff": {"type": "fixed", "delay": "x"}}),
        (name, GOOD, {"attempts": 2}),
        (name, GOOD, {}),
    ]
    *retried, once = add_raw(redis_url, queue, cases)
    _still_works(host)
    for job_id in retried:
        runs = ended_runs(job_id, 2)
        assert [(run.attempt, run.final) for run in runs] == [(1, False), (2, True)]
    run = ended_run(once)
    assert (run.attempt, run.max_attempts, run.final) == (1, 1, True)
    wait_until(lambda: len(queue_state().failed) == len(cases), description="all have failed")


# --------------------------------------------------------------------- jobs whose hash was tampered


def _tampered(
    client: redis.Redis, state: QueueState, job_id: str, fields: dict[str, str | bytes]
) -> None:
    good: dict[bytes | bytearray | memoryview | str | int | float, Any] = {
        "name": RECORD,
        "data": json.dumps(GOOD),
        "opts": json.dumps({"attempts": 3, **RETENTION}),
        "timestamp": str(int(time.time() * 1000)),
        "delay": "0",
        "priority": "0",
    }
    good.update(fields)
    client.hset(state.key(job_id), mapping=good)
    client.lpush(state.key("wait"), job_id)


BROKEN: dict[str, dict[str, str | bytes]] = {
    "data": {"data": "{broken"},
    "data-deep": {"data": "[" * 5000 + "]" * 5000},
    "opts": {"opts": "{broken"},
    "opts-list": {"opts": "[]"},
    "name-empty": {"name": ""},
    "timestamp": {"timestamp": "yesterday"},
    "priority": {"priority": "x"},
    "progress": {"progress": "{"},
    "stacktrace": {"stacktrace": "{"},
    "parent": {"parent": "{broken"},
    "attempts-made": {"atm": "many"},
    "attempts-started": {"ats": "many"},
    "gave-up": {"defa": "job stalled more than allowable limit"},
}


def test_a_broken_record_is_failed_once(
    host: StartHost, queue: str, queue_state: QueueStateFactory, raw_redis: redis.Redis
) -> None:
    """bullmq-python 1.9, P30: garbage in a job's hash does not go round for ever."""
    state = queue_state()
    for job_id, fields in BROKEN.items():
        _tampered(raw_redis, state, job_id, fields)
    _still_works(host)
    wait_until(lambda: not state.active, description="nothing is left in active")
    runs = {job_id: ended_run(job_id) for job_id in BROKEN}
    assert {job_id: (run.status, run.final) for job_id, run in runs.items()} == dict.fromkeys(
        BROKEN, ("failed", True)
    )
    wait_until(lambda: set(state.failed) == set(BROKEN), description="all have failed")
    assert runs["gave-up"].error.startswith("The queue gave the job up: job stalled more than")
    assert "cannot be read" in runs["data"].error
    assert not [job_id for job_id in BROKEN if state.locked(job_id)]
    # Two lengths of the lock: whatever had stayed behind would have come back by now.
    seen = time.monotonic()
    wait_until(lambda: time.monotonic() - seen > 4.5, description="the locks are over", timeout=6)
    assert JobRun.objects.filter(queue_job_id__in=BROKEN).count() == len(BROKEN)
    assert Effect.objects.filter(key="record").count() == 0


def test_a_job_that_the_script_cannot_settle_is_put_aside(
    host: StartHost, queue: str, queue_state: QueueStateFactory, raw_redis: redis.Redis
) -> None:
    """The script stumbles over the parent when the handler has done its work: once is enough."""
    state = queue_state()
    odd: dict[str, str | bytes] = {"parent": "[1]", "parentKey": "nowhere"}
    _tampered(raw_redis, state, "done", odd)
    _tampered(raw_redis, state, "failing", {**odd, "name": "testapp:job:unrecoverable"})
    _still_works(host)
    assert ended_run("done").status == "completed"
    assert ended_run("failing").status == "failed"
    wait_until(lambda: not state.active, description="nothing is left in active")
    wait_until(lambda: state.failed == ["failing"], description="it has failed")
    assert "done" in state.completed
    assert state.job("failing").failed_reason == "Unrecoverable: no use in trying again"


def test_numbers_beyond_every_column_are_cut(
    host: StartHost, queue: str, queue_state: QueueStateFactory, raw_redis: redis.Redis
) -> None:
    """One foreign job must not have the database refuse the records of other runs too."""
    state = queue_state()
    huge = str(10**40)
    cases: dict[str, dict[str, Any]] = {
        "attempts": {"attempts": 10**40},
        "endless": {"attempts": float("inf")},
        "nothing": {"attempts": float("nan")},
        "delay": {"delay": 10**40},
        "keep": {"removeOnComplete": {"count": 10**40}},
        "keep-text": {"removeOnComplete": {"age": "soon"}},
        "parents": {"fpof": 10**40},
    }
    for job_id, opts in cases.items():
        _tampered(raw_redis, state, job_id, {"opts": json.dumps({**RETENTION, **opts})})
    data = {**GOOD, "many": 10**4000, "nan": float("nan"), "inf": float("-inf"), "nul": "a\0b"}
    quiet = "testapp:job:quiet"
    _tampered(raw_redis, state, "data", {"name": quiet, "data": json.dumps(data)})
    _tampered(raw_redis, state, "timestamp", {"timestamp": huge})
    _tampered(raw_redis, state, "counts", {"atm": "2147483647", "ats": "2147483646"})
    _still_works(host)
    runs = {job_id: ended_run(job_id) for job_id in [*cases, "data", "timestamp", "counts"]}
    assert {job_id: run.status for job_id, run in runs.items()} == dict.fromkeys(runs, "completed")
    assert runs["attempts"].max_attempts == runs["endless"].max_attempts == 2**31 - 1
    assert runs["nothing"].max_attempts == 1
    assert runs["timestamp"].enqueued_at.year == 9000
    assert runs["counts"].start == 2**31 - 1
    assert runs["data"].payload == {
        "many": f"(a number of {(10**4000).bit_length()} bits)",
        "nan": "nan",
        "inf": "-inf",
        "nul": "a\ufffdb",
    }


def test_bytes_that_are_no_text_do_not_stop_the_lane(
    host: StartHost,
    queue: str,
    queue_state: QueueStateFactory,
    raw_redis: redis.Redis,
    settings: Settings,
) -> None:
    """A client in another language may store anything; decoding it must not end the consumer."""
    settings.KUMIKO = {**settings.KUMIKO, "UNKNOWN_JOB_AGE": 0}
    state = queue_state()
    data = json.dumps(GOOD).encode()
    _tampered(raw_redis, state, "bytes", {"data": data[:-1] + b', "note": "\xff\xfe"}'})
    _tampered(raw_redis, state, "name-bytes", {"name": b"\xff"})
    _still_works(host)
    assert ended_run("bytes").payload == {"note": "\ufffd\ufffd"}
    assert ended_run("name-bytes").status == "failed"


def test_ids_without_a_job_are_dropped(
    host: StartHost,
    queue: str,
    queue_state: QueueStateFactory,
    raw_redis: redis.Redis,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A job that was deleted while it waited leaves its id: no run, no record, no hash."""
    state = queue_state()
    raw_redis.lpush(state.key("wait"), "ghost")
    raw_redis.zadd(state.key("delayed"), {"late-ghost": (int(time.time() * 1000) - 50) * 0x1000})
    raw_redis.set(state.key("not-a-job"), "text")
    raw_redis.lpush(state.key("wait"), "not-a-job")
    _still_works(host)
    wait_until(lambda: state.counts()["active"] == 0, description="nothing is left in active")
    assert not state.exists("ghost")
    assert not state.exists("late-ghost")
    assert raw_redis.get(state.key("not-a-job")) == "text"
    assert (
        set(JobRun.objects.values_list("queue_job_id", flat=True)) & {"ghost", "late-ghost"}
        == set()
    )
    dropped = [entry.getMessage() for entry in caplog.records if "is gone from" in entry.message]
    assert len(dropped) == 2


def test_an_error_that_is_no_text_fails_the_job(
    host: StartHost, define: Define, queue_state: QueueStateFactory
) -> None:
    """What cannot be encoded for Redis (lone surrogates) must not make a failed job run again."""
    calls: list[str] = []

    def surrogates(payload: dict[str, Any], ctx: JobContext) -> None:
        calls.append(ctx.job_id)
        raise ValueError("\ud800 and \x00 and é")

    job = define(surrogates)
    host("worker")
    dispatched = dispatch(job, tenant_id="acme").job_id
    run = ended_run(dispatched)
    wait_until(lambda: queue_state().failed == [dispatched], description="it has failed")
    assert run.error == "ValueError: \ufffd and \ufffd and é"
    assert queue_state().job(dispatched).failed_reason == "ValueError: ? and \x00 and é"
    assert len(calls) == 1


def test_tenancy_off_refuses_jobs_of_tenants(
    host: StartHost, queue: str, redis_url: str, settings: Settings
) -> None:
    """A job of a tenant must not run as the system's because a worker has no TENANTS."""
    ids = add_raw(redis_url, queue, [(RECORD, GOOD, {}), (RECORD, {"key": "none"}, {})])
    settings.KUMIKO = {key: v for key, v in settings.KUMIKO.items() if key != "TENANTS"}
    host("worker")
    refused, ran = (ended_run(job_id) for job_id in ids)
    assert (refused.status, ran.status, ran.tenant_id) == ("failed", "completed", SYSTEM)
    assert "tenancy is off here" in refused.error
