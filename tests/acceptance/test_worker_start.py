"""Starting, and ``--check``: exit codes and texts, in good states and in bad ones (P90, B213)."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from pytest_django import Settings

from kumiko_django.broker import consumer
from kumiko_django.broker.lane_worker import LaneWorker
from kumiko_django.worker.exit_codes import ExitCode
from kumiko_django.worker.shutdown import SIGNALS
from tests.helpers.processes import run_django
from tests.helpers.valkey import Valkey, valkey


class Started:
    """``runjobs`` that run side by side, each to its end and timed."""

    def __init__(self) -> None:
        self.results: dict[str, CompletedProcess[str]] = {}
        self.seconds: dict[str, float] = {}
        self._threads: list[threading.Thread] = []

    def run(self, name: str, *arguments: str, env: dict[str, str] | None = None) -> None:
        def work() -> None:
            began = time.monotonic()
            self.results[name] = run_django("runjobs", *arguments, env=env, timeout=60)
            self.seconds[name] = time.monotonic() - began

        self._threads.append(threading.Thread(target=work))
        self._threads[-1].start()

    def wait(self) -> None:
        for thread in self._threads:
            thread.join()


@pytest.mark.once
def test_a_redis_that_cannot_be_had(own_valkey: Valkey) -> None:
    """P90, B213, bullmq-python 1.5: within ten seconds; at once where waiting cannot help."""
    started = Started()
    with valkey("right") as locked, valkey() as gone:
        own_valkey.freeze()
        gone.stop()
        bad = {
            "frozen": own_valkey.url,
            "refused": gone.url,
            "host": "redis://no-such-host.invalid:6379/0",
            "password": f"redis://:wrong@127.0.0.1:{locked.port}/0",
            "no password": f"redis://127.0.0.1:{locked.port}/0",
        }
        for name, url in bad.items():
            started.run(name, env={"REDIS_URL": url})
        started.run("check", "--check", env={"REDIS_URL": bad["refused"]})
        started.wait()
        own_valkey.thaw()
    said = {name: result.stderr for name, result in started.results.items()}
    assert {name: result.returncode for name, result in started.results.items()} == dict.fromkeys(
        [*bad, "check"], ExitCode.BROKER_UNAVAILABLE
    ), said
    for name, text in said.items():
        assert 'KUMIKO["REDIS_URL"]' in text, name
        assert "Traceback" not in text, name
        assert "wrong@" not in text, name
        assert "consuming" not in text, name
    assert "does not answer in time" in said["frozen"]
    assert "refuses the credentials" in said["password"]
    assert "refuses the credentials" in said["no password"]
    assert "no-such-host.invalid" in said["host"]
    # A wrong password is told at once: that is how long starting takes on this machine now.
    at_once = min(started.seconds[name] for name in ("password", "no password"))
    waited = {name: seconds - at_once for name, seconds in started.seconds.items()}
    assert waited["password"] + waited["no password"] < 5, waited
    assert "is not reached yet; trying for 10 s" in said["refused"]
    assert "connection refused" in said["refused"]
    for name in ("frozen", "refused", "check"):
        assert 8 < waited[name] < 15, waited
    assert "Lane worker:" in started.results["check"].stdout, "what was found is shown"


@pytest.mark.once
def test_what_has_to_be_changed_first(tmp_path: Path) -> None:
    """Exit codes 2, 3 and 5: the command line, settings and tables, the database."""
    started = Started()
    empty = {"DATABASE_URL": "sqlite://", "KUMIKO_TEST_DATABASE_NAME": str(tmp_path / "empty.db")}
    away = {
        "DATABASE_URL": "postgres://nobody:hidden-word@127.0.0.1:1/none",
        "KUMIKO_TEST_DATABASE_NAME": "none",
    }
    started.run("unmigrated", env=empty)
    started.run("unmigrated check", "--check", env=empty)
    started.run("no database", env=away)
    started.run("setting", env={"KUMIKO_LOCK_SECONDS": "0.1"})
    started.run("lane", "--lane", "nonsense")
    started.wait()
    said = {name: result.stderr for name, result in started.results.items()}
    assert {name: result.returncode for name, result in started.results.items()} == {
        "unmigrated": ExitCode.CONFIGURATION,
        "unmigrated check": ExitCode.CONFIGURATION,
        "no database": ExitCode.DATABASE_UNAVAILABLE,
        "setting": ExitCode.CONFIGURATION,
        "lane": 2,
    }, said
    assert "lacks migrations of kumiko (0001_initial" in said["unmigrated"]
    assert "manage.py migrate" in said["unmigrated"]
    assert "lacks migrations" in said["unmigrated check"]
    assert "cannot be reached" in said["no database"]
    assert "hidden-word" not in said["no database"]
    assert "LOCK_SECONDS" in said["setting"]
    assert "invalid choice: 'nonsense'" in said["lane"]
    assert not [name for name, text in said.items() if "Traceback" in text]


def test_check_tells_what_it_found() -> None:
    started = Started()
    started.run("all", "--lane", "all", "--check")
    with valkey(options={"maxmemory-policy": "allkeys-lru", "maxmemory": "100mb"}) as evicting:
        started.run("evicting", "--check", env={"REDIS_URL": evicting.url})
        started.wait()
    good, evicts = started.results["all"], started.results["evicting"]
    assert (good.returncode, evicts.returncode) == (0, 0), good.stderr + evicts.stderr
    for line in (
        "Lane api: 2 jobs defined",
        f"({connection.vendor}): reachable, migrated",
        "Redis at redis://",
        "Lane worker: 0 waiting, 0 running, 0 delayed",
        "A worker can run here.",
    ):
        assert line in good.stdout, good.stdout
    assert "Warning" not in good.stderr
    assert "maxmemory-policy is 'allkeys-lru'" in evicts.stderr


@pytest.mark.once
def test_log_lines_are_shown_without_any_logging_settings() -> None:
    """Unless the host project says what to do with them, they go to stderr; by verbosity."""
    started = Started()
    plain = {"KUMIKO_TEST_CHILD": "0"}
    started.run("usual", "--drain", env=plain)
    started.run("quiet", "--drain", "--verbosity", "0", env=plain)
    started.wait()
    assert {result.returncode for result in started.results.values()} == {0}
    assert "consuming lane worker (5 at a time)" in started.results["usual"].stderr
    assert "drained" in started.results["usual"].stderr
    assert "consuming" not in started.results["quiet"].stderr


@pytest.mark.once
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--concurrency", "0"], "not a whole number of at least 1"),
        (["--concurrency", "1.5"], "not a whole number of at least 1"),
        (["--grace", "-1"], "not a number of seconds from 0 on"),
        (["--grace", "nan"], "not a number of seconds from 0 on"),
        (["--grace", "inf"], "not a number of seconds from 0 on"),
        (["--grace", "soon"], "not a number of seconds from 0 on"),
        (["--lane", "both"], "invalid choice"),
    ],
)
def test_wrong_arguments_are_named(arguments: list[str], complaint: str) -> None:
    with pytest.raises(CommandError, match=complaint):
        call_command("runjobs", *arguments)


@pytest.mark.once
def test_a_broken_consumer_is_told_by_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was installed for signals before is there again afterwards."""

    async def fails(self: LaneWorker, token: str) -> None:
        raise LookupError("a fault of ours")

    monkeypatch.setattr(consumer, "_LONGEST_PAUSE", 0.01)
    monkeypatch.setattr(LaneWorker, "fetch", fails)
    before = [signal.getsignal(number) for number in SIGNALS]
    with pytest.raises(CommandError, match="a fault of ours") as told:
        call_command("runjobs")
    assert told.value.returncode == ExitCode.FAULT
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_a_script_can_drain_in_its_own_process(settings: Settings) -> None:
    """``call_command`` comes back, also outside the main thread, where no signals can be had."""
    call_command("runjobs", "--drain")
    outcome: list[Any] = []

    def work() -> None:
        call_command("runjobs", "--drain", "--lane", "api")
        outcome.append("back")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(20)
    assert outcome == ["back"]
