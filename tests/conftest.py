"""The fixtures of the whole suite.

How a test of the running system looks::

    def test_a_job_runs_for_its_tenant(runjobs, transactional_db):
        \"\"\"B032: what is dispatched under a prefix is run by the worker under that prefix.\"\"\"
        runjobs("worker")
        dispatched = record.dispatch({"key": "a"}, tenant_id="acme")
        effect = wait_until(
            lambda: Effect.objects.filter(key="a").first(), description="the handler has run"
        )
        assert (effect.job_id, effect.tenant_id) == (dispatched.job_id, "acme")

Every test has a queue prefix of its own, in process and in the processes that it starts, and
leaves no key behind. Which Redis and database a run uses: see ``tests.helpers.services``.
"""

from __future__ import annotations

import inspect
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any
from uuid import uuid4

import pytest
import redis
from asgiref.sync import SyncToAsync
from django.conf import settings as django_settings
from django.db import connection, connections
from django.test import TransactionTestCase
from pytest_django import Settings

from kumiko_django.audit import recorder as audit_recorder
from kumiko_django.audit.recorder import HatchRecorder
from kumiko_django.types.hatches import hatch_port, log_use
from tests.app.tenants import TENANT_IDS
from tests.helpers import database, services, warm
from tests.helpers.fixtures import (
    ConnectionCount,
    DatabaseAway,
    QueueStateFactory,
    RunJobsFactory,
)
from tests.helpers.processes import RunJobs
from tests.helpers.queues import QueueState, sweep
from tests.helpers.valkey import Valkey, valkey


def pytest_configure(config: pytest.Config) -> None:
    """End the services also when the run is terminated (Ctrl-C ends it in an orderly way)."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminated)
    # A shell starts background commands with SIGINT ignored, and what they start inherits that.
    # The processes that tests interrupt have to hear it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header(config: pytest.Config) -> str:
    """Say what the run works with."""
    engine = django_settings.DATABASES["default"]["ENGINE"].rsplit(".", 1)[-1]
    owned = "embedded" if services.start_for_run().owns_redis else "yours"
    return f"kumiko: database {engine}, redis {owned} ({os.environ['REDIS_URL'].split('@')[-1]})"


def pytest_unconfigure(config: pytest.Config) -> None:
    """End what was started for this run."""
    warm.close()
    services.start_for_run().close()


def _terminated(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


# ------------------------------------------------------------------------------------------- Redis


@pytest.fixture(scope="session")
def redis_url() -> str:
    """Give the address of the run's Redis."""
    return os.environ["REDIS_URL"]


@pytest.fixture(scope="session")
def raw_redis(redis_url: str) -> Iterator[redis.Redis]:
    """Give a plain client that decodes, on the run's Redis. Never flush it: it may not be ours."""
    with redis.Redis.from_url(redis_url, decode_responses=True, socket_timeout=10) as client:
        yield client


@pytest.fixture(autouse=True)
def queue_prefix(settings: Settings, raw_redis: redis.Redis) -> Iterator[str]:
    """Give each test a queue prefix of its own, and see to it that nothing stays behind.

    A test that changes ``KUMIKO`` keeps it: ``settings.KUMIKO = {**settings.KUMIKO, ...}``.
    At the end all keys that contain the prefix are deleted, after two checks: on an embedded Redis
    there are no other keys, and finished jobs of ours have a retention (P50).
    """
    prefix = f"test-{uuid4().hex[:12]}"
    settings.KUMIKO = {**settings.KUMIKO, "QUEUE_PREFIX": prefix}
    key_prefix = settings.KUMIKO.get("KEY_PREFIX", "bull")
    yield prefix
    faults = sweep(
        raw_redis, prefix, key_prefix=key_prefix, owned=services.start_for_run().owns_redis
    )
    assert not faults, "\n".join(["the test has left in Redis:", *faults])


@pytest.fixture
def queue_state(queue_prefix: str, raw_redis: redis.Redis, settings: Settings) -> QueueStateFactory:
    """Look into a lane's queue: ``queue_state("worker").delayed``, ``.job(id).data``, ...

    On a Redis of the test's own: ``QueueState(client, f"{queue_prefix}-worker")``.
    """

    def state(lane: str = "worker") -> QueueState:
        key_prefix = settings.KUMIKO.get("KEY_PREFIX", "bull")
        return QueueState(raw_redis, f"{queue_prefix}-{lane}", key_prefix)

    return state


@pytest.fixture
def own_valkey(settings: Settings, queue_prefix: str) -> Iterator[Valkey]:
    """Give the test a Redis of its own to freeze and to stop; ``KUMIKO`` points to it."""
    with valkey() as server:
        settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": server.url}
        yield server


# --------------------------------------------------------------------------------------- processes


@pytest.fixture
def runjobs(transactional_db: None, queue_prefix: str, tmp_path: Path) -> Iterator[RunJobsFactory]:
    """Start ``runjobs`` processes, and end them before the database is emptied.

    ``runjobs("worker", "--drain", concurrency=2, grace=5, env={...})`` returns a ``RunJobs`` that
    consumes already; with ``ready=False`` it does not wait for that.
    """
    started: list[RunJobs] = []

    def start(
        lane: str = "worker",
        *arguments: str,
        concurrency: int | None = None,
        grace: float | None = None,
        env: dict[str, str] | None = None,
        ready: bool = True,
    ) -> RunJobs:
        options = [*arguments]
        if concurrency is not None:
            options += ["--concurrency", str(concurrency)]
        if grace is not None:
            options += ["--grace", f"{grace:g}"]
        output_file = tmp_path / f"runjobs-{len(started) + 1}-{lane}.log"
        process = RunJobs(lane, output_file, arguments=options, env=env)
        started.append(process)
        return process.wait_ready() if ready else process

    try:
        yield start
    finally:
        for process in started:
            process.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Show what a failed test's worker processes have written."""
    report = yield
    if report.when == "call" and report.failed and "tmp_path" in getattr(item, "funcargs", {}):
        for log in sorted(item.funcargs["tmp_path"].glob("runjobs-*.log")):  # type: ignore[attr-defined]
            report.sections.append((log.name, log.read_text(errors="replace")[-20_000:]))
    return report


# ------------------------------------------------------------------------------- database, tenants


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None) -> Iterator[None]:
    """See to it that the test database can be dropped, also after a test that died in a thread.

    Connections that are left open are found by the tests that count them, not by this.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", database.empty_after_test)
        yield
    if connection.vendor == "postgresql":
        database.terminate_connections()


@pytest.fixture
def connection_count() -> ConnectionCount:
    """Count the test database's other clients, by PostgreSQL's own count; None on SQLite."""
    return database.connection_count


@pytest.fixture
def database_away(transactional_db: None) -> DatabaseAway:
    """Take the database away: ``with database_away(): ...`` (see ``tests.helpers.database``)."""
    return database.database_away


@pytest.fixture(autouse=True)
def _hatches_go_to_the_log(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the thread that records uses of escape hatches out of tests that do not ask for it."""
    if "hatches" not in request.fixturenames:
        monkeypatch.setattr(hatch_port, "sink", log_use)


@pytest.fixture
def hatches(monkeypatch: pytest.MonkeyPatch) -> Iterator[HatchRecorder]:
    """Give the recorder of uses of escape hatches, plugged in as in every process."""
    recorder = HatchRecorder()
    monkeypatch.setattr(audit_recorder.current, "recorder", recorder)
    audit_recorder.plug_in()
    yield recorder
    assert recorder.flush(20)


@pytest.fixture
def tenants() -> tuple[str, ...]:
    """Give the ids of the active tenants."""
    return TENANT_IDS


@pytest.fixture(autouse=True)
def _close_connections_of_async_tests(request: pytest.FixtureRequest) -> Iterator[None]:
    """Close what the asynchronous ORM opened in the thread that asgiref keeps for the whole run."""
    yield
    if inspect.iscoroutinefunction(getattr(request, "function", None)):
        SyncToAsync.single_thread_executor.submit(connections.close_all).result()
