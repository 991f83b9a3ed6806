"""``erase_subject``, the command and the function: history and queues together (issue 5, 5)."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from kumiko_django import SYSTEM, DefinitionError, JobContext, JobDefinition, dispatch, registry
from kumiko_django.broker.bullmq import queue_scripts
from kumiko_django.broker.connection import sync_client
from kumiko_django.broker.keys import queue_name
from kumiko_django.broker.records import records_key
from kumiko_django.history.models import JobRun, JobRunLog
from kumiko_django.history.record import encode
from kumiko_django.testing import drain
from kumiko_django.worker.erasure import Erasure, erase_subject
from tests.unit.history.events import ended, started

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "mia@example.org"
NAME = "testapp:job:remind"
PAYLOAD = {"customer_id": 7, "email": SECRET}
seen: list[Any] = []


class Refused(Exception):
    """What the handler raises, with personal data in its text, as careless handlers do."""


@pytest.fixture(autouse=True)
def jobs(transactional_db: None, queue_prefix: str) -> Iterator[None]:
    def remind(payload: Any, ctx: JobContext) -> Any:
        seen.append(payload)
        ctx.log.info(payload["email"], email=payload["email"])
        ctx.progress(1, 2, payload["email"])
        if payload.get("fails"):
            raise Refused(payload["email"])
        return {"sent_to": payload["email"]}

    seen.clear()
    with registry.isolated():
        registry.register(
            JobDefinition(handler=remind, app_label="testapp", subject_fields=("customer_id",))
        )
        yield


def erase(subject: Any = 7, tenant_id: Any = None, **options: Any) -> Erasure:
    return erase_subject(subject, tenant_id=tenant_id, **options)


def run(*arguments: str) -> tuple[int, str, str]:
    """The command's exit code, what it prints, and its error."""
    out = io.StringIO()
    try:
        call_command("erase_subject", *arguments, stdout=out)
    except CommandError as error:
        return error.returncode, out.getvalue(), str(error)
    return 0, out.getvalue(), ""


def in_redis() -> str:
    """All that the queue has, but for its stream of events."""
    prefix = queue_scripts(queue_name("worker")).keys[""]
    with sync_client() as client:
        kinds = {key: client.type(key) for key in client.scan_iter(f"{prefix}*")}
        reads: dict[Any, Any] = {
            "hash": client.hgetall, "string": client.get,
            "list": lambda key: client.lrange(key, 0, -1),
            "zset": lambda key: client.zrange(key, 0, -1),
        }  # fmt: skip
        return str({key: reads[kind](key) for key, kind in kinds.items() if kind in reads})


def in_history() -> str:
    return str([list(model.objects.values()) for model in (JobRun, JobRunLog)])


def sent(**payload: Any) -> str:
    return dispatch(NAME, {**PAYLOAD, **payload}, tenant_id="acme").job_id


def test_nothing_is_left_in_history_and_queue() -> None:
    """Completed and failed jobs, with payload, result, progress, error, traceback and log."""
    job_id = sent()
    sent(fails=True)
    other = sent(customer_id=8, email="otto@example.org")
    drain(raise_failures=False)
    with sync_client() as client:  # what another BullMQ client may have logged
        client.rpush(f"{queue_scripts(queue_name('worker')).keys['']}{job_id}:logs", SECRET)
    assert SECRET in in_redis()
    assert in_history().count(SECRET) > 8
    assert erase(dry_run=True) == erase() == Erasure(runs=2, logs=3, jobs=2, finished=True)
    assert SECRET not in in_redis()
    assert SECRET not in in_history()
    assert "otto@example.org" in in_redis()
    assert JobRun.objects.get(queue_job_id=other).result == {"sent_to": "otto@example.org"}
    assert erase() == Erasure(finished=True), "to repeat it is harmless"


@pytest.mark.parametrize("word", ["system", "SYSTEM"])
def test_the_runs_of_no_tenant_by_the_word(word: str) -> None:
    dispatch(NAME, PAYLOAD, tenant_id=SYSTEM)
    drain()
    code, out, _ = run("7", "--tenant", word, "--dry-run")
    assert (code, out[:20]) == (0, "Would erase: runs 1,")


def test_who_retries_an_erased_job_is_refused() -> None:
    """B133: it has no payload any more, so its handler must not be called."""
    job_id = sent(fails=True)
    drain(raise_failures=False)
    erase()
    seen.clear()
    keys = queue_scripts(queue_name("worker")).keys
    with sync_client() as client:  # what ``Job.retry()`` does
        assert client.zrem(keys["failed"], job_id)
        client.hdel(f"{keys['']}{job_id}", "finishedOn", "processedOn")
        client.rpush(keys["wait"], job_id)
        client.zadd(keys["marker"], {"0": 0})
    drain(raise_failures=False)
    last = JobRun.objects.order_by("id").last()
    assert last is not None
    assert "cannot be trusted" in last.error
    assert (last.queue_job_id, last.status, last.tenant_id, seen) == (job_id, "failed", "acme", [])


def test_what_has_not_ended_is_left_and_told_of() -> None:
    """A job that waits, one for later, a run on its way to the history: exit code 1."""
    sent()
    dispatch(NAME, PAYLOAD, tenant_id="acme", delay=3600)
    start = started("other", job_name=NAME, payload=PAYLOAD)
    record = encode(start, ended(start.run_id))
    with sync_client() as client:
        client.hset(records_key("worker"), "other/1/1", record)
    before = in_redis()
    done = erase()
    assert (done.pending, done.unrecorded, done.is_complete) == (2, 1, False)
    assert in_redis() == before
    code, out, error = run("7", "--all-tenants")
    assert (code, out.strip()) == (
        1,
        "Erased: runs 0, log lines 0, records that tenants see 0, ended jobs in the queues 0.",
    )
    assert "jobs that have not ended 2, runs that have not ended 0, records on their way" in error
    drain(later=True)
    with sync_client() as client:
        client.delete(records_key("worker"))
    assert run("7", "--all-tenants")[0] == 0
    assert SECRET not in in_redis() + in_history()


def test_a_tenant_has_its_own_persons() -> None:
    sent()
    dispatch(NAME, PAYLOAD, tenant_id="globex")
    drain()
    assert erase(tenant_id="globex") == Erasure(runs=1, logs=1, jobs=1, finished=True)
    assert JobRun.objects.get(tenant_id="acme").payload == PAYLOAD
    assert in_redis().count(SECRET) > 1
    assert erase() == Erasure(runs=1, logs=1, jobs=1, finished=True)


def test_it_can_be_broken_off_between_two_steps() -> None:
    for _ in range(3):
        sent()
    drain()
    done = erase(batch_size=1, go_on=lambda done: done.runs < 2)
    assert (done.runs, done.finished, done.is_complete) == (2, False, False)
    assert erase(batch_size=1) == Erasure(runs=1, logs=1, finished=True)


def test_the_command_says_what_it_does() -> None:
    sent()
    drain()
    told = "runs 1, log lines 1, records that tenants see 0, ended jobs in the queues 1."
    assert run("7", "--tenant", "acme", "--dry-run") == (0, f"Would erase: {told}\n", "")
    assert SECRET in in_history()
    assert run("7", "--tenant", "acme", "--batch-size", "1") == (0, f"Erased: {told}\n", "")
    assert run("7", "--tenant", "acme", "--verbosity", "0") == (0, "", "")
    assert SECRET not in in_history()


def test_it_does_not_put_the_person_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    sent(customer_id=SECRET)
    drain()
    caplog.clear()
    with caplog.at_level("DEBUG"):
        erase(SECRET)
    assert "a person was erased: 1 runs, 1 log lines" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["7"], "Say whose runs: --tenant ID, or --all-tenants"),
        ([" ", "--all-tenants"], "it is empty"),
        (["7", "--tenant", "acme", "--all-tenants"], "not allowed with argument"),
        (["7", "--all-tenants", "--batch-size", "0"], "is not a whole number from 1 to 10,000"),
    ],
)
def test_a_wrong_command_line_erases_nothing(arguments: list[str], message: str) -> None:
    sent()
    drain()
    code, _, error = run(*arguments)
    assert (code in (1, 2), message in error) == (True, True), error
    assert SECRET in in_history()


def test_without_tenancy_nobody_asks_whose(settings: Settings) -> None:
    settings.KUMIKO = {**settings.KUMIKO, "TENANTS": None}
    assert run("7")[0] == 0


def test_nobody_is_found_where_no_job_says_whose_data_it_holds() -> None:
    with registry.isolated():
        registry._by_name.clear()
        with pytest.raises(DefinitionError, match="subject_fields"):
            erase()
        code, _, error = run("7", "--all-tenants")
    assert (code, "subject_fields" in error) == (3, True)


@pytest.mark.parametrize("subject", ["", " "])
def test_a_subject_is_needed(subject: str) -> None:
    with pytest.raises(ValueError, match="the subject is empty"):
        erase(subject)


def test_a_redis_that_is_away(settings: Settings) -> None:
    settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": "redis://127.0.0.1:1/0"}
    code, _, error = run("7", "--all-tenants")
    assert (code, "Erased: runs 0" in error) == (4, True)


def test_jobs_of_other_producers_do_not_stop_it() -> None:
    keys = queue_scripts(queue_name("worker")).keys
    bad = ["no json", "[1]", "7", json.dumps({"customer_id": {"a": 1}})]
    with sync_client() as client:
        for number, data in enumerate(bad):
            client.hset(f"{keys['']}odd{number}", mapping={"name": NAME, "data": data})
            client.zadd(keys["completed"], {f"odd{number}": number, f"gone{number}": number})
        client.hset(records_key("worker"), mapping={"a": "no json", "b": "[1]", "c": "{}"})
    assert erase() == Erasure(finished=True)
