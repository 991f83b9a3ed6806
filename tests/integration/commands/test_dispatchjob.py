"""``dispatchjob``: queue, and with ``--wait`` tell how it ended."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import threading
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from pytest_django import Settings

from kumiko_django import SYSTEM
from kumiko_django.history.models import JobRun
from kumiko_django.worker import following
from kumiko_django.worker.exit_codes import DispatchCode
from tests.app.models import Effect
from tests.helpers.fixtures import QueueStateFactory, RunJobsFactory
from tests.helpers.processes import ROOT, child_environment, run_django
from tests.helpers.valkey import Valkey
from tests.helpers.waiting import wait_until
from tests.integration.worker.conftest import define
from tests.integration.worker.host_thread import Define

__all__ = ["define"]

pytestmark = pytest.mark.django_db(transaction=True)
RECORD = "testapp:job:record"


def refused(*arguments: str) -> tuple[int, str]:
    with pytest.raises(CommandError) as told:
        call_command("dispatchjob", *arguments)
    return told.value.returncode, str(told.value)


def test_it_queues_and_prints_the_id(
    queue_state: QueueStateFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("dispatchjob", RECORD, "--payload", '{"key": "k"}', "--tenant", "acme")
    out, err = capsys.readouterr()
    (job_id,) = queue_state("worker").wait
    assert out == f"{job_id}\n"
    assert err == f"queued: {RECORD}\n"
    data = queue_state("worker").job(job_id).data
    assert (data["key"], data["_tenantId"]) == ("k", "acme")


@pytest.mark.parametrize("word", ["system", "SYSTEM"])
def test_how_to_say_system(word: str, queue_state: QueueStateFactory, settings: Settings) -> None:
    """Whatever the admin or Python calls it, unless the project has a tenant of that name."""
    tenants = [["acme"], ["acme", word]]
    for active, meant in zip(tenants, (SYSTEM, word), strict=True):
        settings.KUMIKO = {**settings.KUMIKO, "TENANTS": lambda active=active: active}
        call_command("dispatchjob", RECORD, "--tenant", word)
        job_id = queue_state("worker").wait[-1]
        assert queue_state("worker").job(job_id).data["_tenantId"] == meant


def test_a_tenant_that_is_not_active(
    queue_state: QueueStateFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may be a slip, or a job that cleans up after a tenant: told, and queued."""
    call_command("dispatchjob", RECORD, "--tenant", "acmee")
    told = capsys.readouterr().err
    assert "Warning: 'acmee' is none of the active tenants (KUMIKO[\"TENANTS\"])." in told
    assert "Did you mean 'acme'?" in told
    assert len(queue_state("worker").wait) == 1


def test_tenants_that_cannot_be_asked(
    queue_state: QueueStateFactory, capsys: pytest.CaptureFixture[str], settings: Settings
) -> None:
    """Only a word with two meanings needs them."""

    def broken() -> list[str]:
        raise OSError("no database")

    settings.KUMIKO = {**settings.KUMIKO, "TENANTS": broken}
    code, text = refused(RECORD, "--tenant", "system")
    assert code == DispatchCode.REFUSED
    assert f'KUMIKO["TENANTS"] raised OSError. Give {SYSTEM} for what belongs to none.' in text
    call_command("dispatchjob", RECORD, "--tenant", "acme")
    assert "Warning: Whether 'acme' is an active tenant cannot" in capsys.readouterr().err
    assert len(queue_state("worker").wait) == 1


def test_the_payload_from_stdin(
    queue_state: QueueStateFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"key": "ä"}'))
    call_command("dispatchjob", RECORD, "--payload", "-", "--tenant", "acme", "--verbosity", "0")
    (job_id,) = queue_state("worker").wait
    assert queue_state("worker").job(job_id).data["key"] == "ä"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["testapp:job:recrd", "--tenant", "acme"], "Did you mean 'testapp:job:record'"),
        ([RECORD], r"^testapp:job:record needs a tenant: give --tenant ID. --tenant system says"),
        ([RECORD, "--tenant", "acme", "--payload", "{nope"], "--payload is no JSON: .* column 2"),
        ([RECORD, "--tenant", "acme", "--payload", "[1]"], r"must be a JSON object .*not \[1\]"),
        ([RECORD, "--tenant", "acme", "--payload", '{"_a": 1}'], "reserved"),
        (["testapp:job:system-job", "--tenant", "acme"], "is a job of the system"),
    ],
)
def test_what_is_refused(
    arguments: list[str], complaint: str, queue_state: QueueStateFactory
) -> None:
    code, text = refused(*arguments)
    assert code == DispatchCode.REFUSED
    assert re.search(complaint, text), text
    assert queue_state("worker").counts()["wait"] == 0


def test_wrong_command_lines() -> None:
    assert refused(RECORD, "--timeout", "3") == (2, "--timeout needs --wait.")
    with pytest.raises(CommandError, match="not a number of seconds"):
        call_command("dispatchjob", RECORD, "--wait", "--timeout", "soon")


def test_redis_away(own_valkey: Valkey) -> None:
    own_valkey.stop()
    code, text = refused(RECORD, "--tenant", "acme")
    assert code == DispatchCode.BROKER_UNAVAILABLE
    assert 'KUMIKO["REDIS_URL"]' in text


def test_the_exit_code_tells_the_outcome(runjobs: RunJobsFactory) -> None:
    """In a process of its own, as a script or a pipeline would call it."""
    runjobs("worker")
    good = run_django(
        "dispatchjob", RECORD, "--tenant", "acme", "--wait", "--timeout", "30",
        "--payload", '{"returns": {"n": 1}}',
    )  # fmt: skip
    assert good.returncode == DispatchCode.OK, good.stderr
    job_id, result = good.stdout.splitlines()
    assert json.loads(result) == {"n": 1}
    assert JobRun.objects.get(queue_job_id=job_id).status == "completed"
    assert "completed, attempt 1 of 1" in good.stderr
    bad = run_django("dispatchjob", "testapp:job:always-fails", "--tenant", "acme", "--wait")
    assert bad.returncode == DispatchCode.FAILED, bad.stderr
    assert "The job ended as failed: Refused" in bad.stderr
    assert "Traceback" not in bad.stderr
    late = run_django(
        "dispatchjob", "testapp:job:sleepy", "--tenant", "acme", "--wait", "--timeout", "0.5",
        "--payload", '{"seconds": 2}',
    )  # fmt: skip
    assert late.returncode == DispatchCode.NOT_ENDED, late.stderr
    assert "has not ended within 0.5 s. It goes on." in late.stderr
    wait_until(lambda: Effect.objects.filter(key="end").exists(), description="it went on")


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"concurrency": "skip"}, 'one is pending for this tenant already (concurrency="skip")'),
        (
            {"concurrency": "skip", "concurrency_scope": "global"},
            'one is pending already (concurrency="skip")',
        ),
        ({"concurrency": "throttle", "throttle": 60}, "one was let in less than throttle=60 ago"),
        ({"max_per_tenant": 1}, "its tenant has 1 pending already (max_per_tenant=)"),
    ],
)
def test_a_job_that_is_not_let_in(
    options: dict[str, Any],
    rule: str,
    define: Define,
    queue_state: QueueStateFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """P09: the rule, and a code of its own; no id, since nothing has it."""
    define(lambda payload, ctx: None, name="alone", **options)
    call_command("dispatchjob", "testapp:job:alone", "--tenant", "acme")
    capsys.readouterr()
    for more in ([], ["--wait"]):
        assert refused("testapp:job:alone", "--tenant", "acme", *more) == (
            DispatchCode.NOT_ACCEPTED, f"testapp:job:alone was not accepted: {rule}.",
        )  # fmt: skip
        assert capsys.readouterr().out == ""
    assert queue_state("worker").counts()["wait"] == 1


def test_the_history_cannot_be_read(queue_state: QueueStateFactory) -> None:
    """Only whoever waits for the end needs it, so the job is queued all the same."""
    away = {
        "DATABASE_URL": "postgres://nobody:hidden-word@127.0.0.1:1/none",
        "KUMIKO_TEST_DATABASE_NAME": "none",
    }
    ended = run_django("dispatchjob", RECORD, "--tenant", "acme", "--wait", env=away)
    assert ended.returncode == DispatchCode.DATABASE_UNAVAILABLE, ended.stderr
    assert "The history cannot be read" in ended.stderr
    assert "The job is queued" in ended.stderr
    assert "hidden-word" not in ended.stderr
    assert "Traceback" not in ended.stderr
    assert queue_state("worker").wait == ended.stdout.split()


def test_progress_is_told(runjobs: RunJobsFactory, capsys: pytest.CaptureFixture[str]) -> None:
    runjobs("worker")
    payload = json.dumps({"lines": 30, "pause": 0.1})
    call_command("dispatchjob", "testapp:job:logs-much", "--tenant", "acme", "--wait",
                 "--payload", payload)  # fmt: skip
    out, err = capsys.readouterr()
    assert out.splitlines()[1] == "30"
    assert re.search(r"^running, attempt 1 of 1: \d+ of 30$", err, re.MULTILINE), err
    assert err.splitlines()[-1] == "completed, attempt 1 of 1"


def test_a_job_that_was_removed_is_not_waited_for(
    queue_state: QueueStateFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another client, say; after the time that the history may be behind the queue."""
    monkeypatch.setattr(following, "SETTLED_SECONDS", 0.2)
    ended: list[tuple[int, str]] = []

    def wait() -> None:
        try:
            ended.append(refused(RECORD, "--tenant", "acme", "--wait"))
        finally:
            connections.close_all()

    waiting = threading.Thread(target=wait)
    waiting.start()
    state = queue_state("worker")
    job_id = wait_until(lambda: next(iter(state.wait), None), description="it is queued")
    assert waiting.is_alive()
    state.client.delete(state.key(str(job_id)), state.key("wait"))
    waiting.join(20)
    assert ended[0][0] == DispatchCode.FAILED
    assert "it was removed" in ended[0][1]


def test_ctrl_c_leaves_the_job_alone(queue_state: QueueStateFactory) -> None:
    waiting = subprocess.Popen(
        [sys.executable, "-m", "django", "dispatchjob", RECORD, "--tenant", "acme", "--wait"],
        cwd=ROOT, env=child_environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert waiting.stdout is not None
    job_id = waiting.stdout.readline().strip()
    waiting.send_signal(2)
    _, err = waiting.communicate(timeout=20)
    assert waiting.returncode == DispatchCode.INTERRUPTED, err
    assert "The job goes on" in err
    assert "Traceback" not in err
    assert queue_state("worker").wait == [job_id]


def test_the_page_has_every_exit_code() -> None:
    page = (ROOT / "docs/reference/commands.md").read_text(encoding="utf-8")
    section = page.split("## `dispatchjob`")[1].split("\n## ")[0]
    documented = re.findall(r"^\| (\d+) \|", section, re.MULTILINE)
    assert {int(code) for code in documented} == {int(code) for code in DispatchCode}
