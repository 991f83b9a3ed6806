"""``jobstatus``: where a job is, and what its runs came to."""

from __future__ import annotations

import json
from io import StringIO

import pytest
import redis
from django.core.management import CommandError, call_command

from kumiko_django.broker.lookup import find_job
from kumiko_django.testing import drain
from kumiko_django.worker.exit_codes import ExitCode
from tests.app.jobs import always_fails, api_echo, record
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.valkey import Valkey

pytestmark = pytest.mark.django_db(transaction=True)


def status(*arguments: str) -> str:
    out = StringIO()
    call_command("jobstatus", *arguments, stdout=out)
    return out.getvalue()


def test_a_job_that_waits() -> None:
    sent = record.dispatch({}, tenant_id="acme")
    text = status(sent.job_id)
    assert text.startswith("Queue: waiting, lane worker, testapp:job:record\n")
    assert "Runs: none on record" in text
    later = api_echo.dispatch({}, tenant_id="acme", delay=3600)
    with pytest.raises(CommandError, match="is not in lane worker, but in api"):
        status(later.job_id, "--lane", "worker")
    told = json.loads(status(later.job_id, "--json"))
    assert (told["queue"]["state"], told["queue"]["lane"], told["runs"]) == ("delayed", "api", [])
    assert told["queue"]["due_at"] > told["queue"]["created_at"]


def test_a_job_that_has_failed(queue_state: QueueStateFactory) -> None:
    sent = always_fails.dispatch({}, tenant_id="acme")
    drain(raise_failures=False)
    text = status(sent.job_id, "--lane", "worker")
    assert "Queue: failed, lane worker, testapp:job:always-fails" in text
    assert "1 of 1 attempts ended" in text
    assert "error: Refused" in text
    assert "Runs: 1" in text
    assert "failed, attempt 1 of 1: Refused" in text
    state = queue_state("worker")
    state.client.delete(state.key(sent.job_id), state.key("failed"))
    assert "Queue: not there any more\nRuns: 1\n" in status(sent.job_id)
    (run,) = json.loads(status(sent.job_id, "--json"))["runs"]
    with pytest.raises(CommandError, match=r"is not in lane api, but in worker\.$") as told:
        status(sent.job_id, "--lane", "api")
    assert told.value.returncode == ExitCode.FAULT
    assert (run["status"], run["final"], run["tenant_id"]) == ("failed", True, "acme")


@pytest.mark.parametrize(
    "state", ["active", "prioritized", "waiting-children", "completed", "paused"]
)
def test_every_state(state: str, queue_state: QueueStateFactory, raw_redis: redis.Redis) -> None:
    sent = record.dispatch({}, tenant_id="acme")
    queue = queue_state("worker")
    raw_redis.delete(queue.key("wait"))
    if state in ("active", "paused"):
        raw_redis.lpush(queue.key(state), sent.job_id)
    else:
        raw_redis.zadd(queue.key(state), {sent.job_id: 1})
    found = find_job(sent.job_id)
    assert found is not None
    assert found.state == state
    raw_redis.delete(queue.key(state))
    found = find_job(sent.job_id)
    assert found is not None
    assert found.state == "unknown"


def test_what_is_no_job() -> None:
    """Not the queue's own keys either, which look like jobs by their names."""
    record.dispatch({}, tenant_id="acme")
    for name in ("nothing", "meta", "wait", "events"):
        with pytest.raises(CommandError, match=f"There is no job '{name}'") as told:
            status(name)
        assert told.value.returncode == ExitCode.FAULT


def test_redis_away(own_valkey: Valkey) -> None:
    own_valkey.stop()
    with pytest.raises(CommandError) as told:
        status("any")
    assert told.value.returncode == ExitCode.BROKER_UNAVAILABLE
