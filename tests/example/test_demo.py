"""``make demo`` and ``make serve`` as processes: how they end, and what they leave behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis
from django.conf import settings

from example_project.demo.client import AdminBrowser
from example_project.demo.redis_server import free_port
from tests.helpers.processes import ROOT
from tests.helpers.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]

DEMO_SECONDS = 200
START_SECONDS = 60


class Demo:
    """The demo as a process, with its own folder for temporary files."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self.temporary = folder / "tmp"
        self.temporary.mkdir(exist_ok=True)
        self._output = folder / "output.txt"
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in ("REDIS_URL", "DATABASE_URL", "DATA_DIR", "DJANGO_SETTINGS_MODULE")
        }
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "example_project.demo", *arguments],
                cwd=ROOT,
                env={**kept, "TMPDIR": str(self.temporary), **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def output(self) -> str:
        return self._output.read_text(encoding="utf-8", errors="replace")

    def wait(self, seconds: float = DEMO_SECONDS) -> int:
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the demo hangs:\n{self.output()}") from None

    def wait_output(self, pattern: str) -> re.Match[str]:
        def found() -> re.Match[str] | None:
            match = re.search(pattern, self.output())
            if match is None and self._process.poll() is not None:
                raise AssertionError(f"the demo ended before {pattern!r}:\n{self.output()}")
            return match

        match = wait_until(found, description=f"the demo says {pattern!r}", timeout=START_SECONDS)
        assert match
        return match

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(30)

    def left_running(self) -> list[int]:
        """Name the processes that are still there, and the port of its Redis if that answers."""
        pids = [int(pid) for pid in re.findall(r"\(pid (\d+)\)", self.output())]
        left = [pid for pid in pids if is_running(pid)]
        embedded = re.search(r"on 127\.0\.0\.1:(\d+)/0 \(embedded\)", self.output())
        if embedded:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", int(embedded[1]))) == 0:
                    left.append(-int(embedded[1]))
        return left


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Demo]]:
    """End what a test has started."""
    demos: list[Demo] = []
    yield demos
    for demo in demos:
        demo.close()


def of_this_run() -> dict[str, str]:
    """Give the addresses of the run's servers; on SQLite none, so that the demo brings its own."""
    if settings.DATABASES["default"]["ENGINE"].endswith("sqlite3"):
        return {}
    return {name: os.environ[name] for name in ("REDIS_URL", "DATABASE_URL")}


def test_the_demo_comes_out_as_told(
    tmp_path: Path, started: list[Demo], raw_redis: redis.Redis
) -> None:
    """It shows the runs, ends with 0, writes no escape codes to a file, and leaves nothing."""
    started.append(demo := Demo(tmp_path, **of_this_run()))

    assert demo.wait() == 0, demo.output()

    output = demo.output()
    rows = re.findall(
        r"^  (\S+:job:\S+) +(\S+) +(worker|api) +(\d) of (\d) +(.+?) +\d+\.\d\d s$", output, re.M
    )
    assert len(rows) == 22
    assert ("billing:job:collect-payment", "bergmann", "worker", "3", "4", "completed") in rows
    assert ("billing:job:collect-payment", "nordlicht", "worker", "4", "4", "failed, for good") in (
        rows
    )
    assert sum(row[2] == "api" for row in rows) == 5
    assert "warn   row left out" in output
    assert "ProviderBusy: The payment provider answered 503" in output
    assert "All came out as told" in output
    assert "make serve" in output
    assert "\x1b" not in output
    assert demo.left_running() == []
    assert list(demo.temporary.iterdir()) == []
    assert raw_redis.keys("*kumiko-demo*") == []
    assert schemas_left() == []


def schemas_left() -> list[str]:
    """Schemas of demos on the run's PostgreSQL."""
    database = settings.DATABASES["default"]
    if database["ENGINE"].endswith("sqlite3"):
        return []
    named = {"user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
    arguments = {name: database[key] for name, key in named.items() if database[key]}
    with psycopg.connect(dbname="postgres", **arguments) as connection:
        rows = connection.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'kumiko_demo%'"
        )
        return [name for (name,) in rows]


@pytest.mark.once
def test_a_worker_that_dies_fails_the_demo_with_its_last_words(
    tmp_path: Path, started: list[Demo]
) -> None:
    started.append(demo := Demo(tmp_path))
    pid = int(demo.wait_output(r"runjobs --lane worker .*\(pid (\d+)\)")[1])
    demo.wait_output("What the workers do")

    os.kill(pid, signal.SIGKILL)

    assert demo.wait(60) == 1
    assert f"The worker for lane worker (pid {pid}) ended by itself with code -9" in demo.output()
    assert "consuming lane worker" in demo.output().split("Its last lines:")[1]
    assert demo.left_running() == []
    assert list(demo.temporary.iterdir()) == []


@pytest.mark.once
def test_a_redis_that_refuses_fails_the_demo_with_the_reason(
    tmp_path: Path, started: list[Demo]
) -> None:
    started.append(demo := Demo(tmp_path, REDIS_URL=f"redis://127.0.0.1:{free_port()}/0"))

    assert demo.wait(60) == 1
    assert "The Redis that REDIS_URL names" in demo.output()
    assert "Traceback" not in demo.output()


@pytest.mark.once
def test_ctrl_c_ends_everything_that_was_started(tmp_path: Path, started: list[Demo]) -> None:
    started.append(demo := Demo(tmp_path))
    demo.wait_output("What the workers do")

    demo.interrupt()

    assert demo.wait(60) == 130
    assert "Traceback" not in demo.output()
    assert demo.left_running() == []
    assert list(demo.temporary.iterdir()) == []


@pytest.mark.once
def test_serve_runs_until_ctrl_c_and_keeps_its_data(tmp_path: Path, started: list[Demo]) -> None:
    """The admin is open with the password that is shown; a second start finds the same runs."""
    counts = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        served = Demo(tmp_path / name, "--serve", DATA_DIR=str(tmp_path / "data"))
        started.append(served)
        user, password = served.wait_output(r"user (\S+), password (\S+)").groups()
        url = served.wait_output(r"Admin: (http://\S+?)/admin/")[1]
        admin = AdminBrowser(url, user, password)
        counts.append(settled_run_count(admin))

        served.interrupt()
        assert served.wait(60) == 0, served.output()
        assert served.left_running() == []

    assert counts == [22, 22]


def settled_run_count(admin: AdminBrowser) -> int:
    """Count the runs in the admin's list once the demo's jobs have ended."""
    link = re.compile(r"/admin/kumiko/jobrun/([0-9a-f-]{36})/")

    def runs(query: str) -> set[str]:
        return set(link.findall(admin.page(f"/admin/kumiko/jobrun/{query}")))

    def settled() -> int:
        count = len(runs(""))
        return count if count >= 22 and not runs("?status=running") else 0

    return wait_until(settled, description="all runs have ended", timeout=60, interval=0.5)
