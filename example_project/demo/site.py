"""The running example: servers, database, workers for both lanes, and a web server."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from example_project.demo.database import Database
from example_project.demo.processes import ROOT, DemoFailed, Process, Processes
from example_project.demo.redis_server import delete_keys, describe, free_port, start_redis

LANES: Final = ("worker", "api")
GRACE_SECONDS: Final = 5
COMMAND_SECONDS: Final = 60
WEB_SECONDS: Final = 30
USUAL_PORT: Final = 8000


@dataclass(frozen=True)
class Secrets:
    """What ``manage.py seed`` made up."""

    admin_user: str
    admin_password: str = field(repr=False)
    api_keys: dict[str, str] = field(repr=False)


class Site:
    """A context manager: everything runs inside the block, and nothing is left after it.

    With ``keep`` the data stays in the folder, and the next site with that folder goes on with it.
    """

    def __init__(self, data_dir: Path, *, keep: bool, tell: Callable[[str], None]) -> None:
        self.data_dir = data_dir
        self.logs = data_dir / "logs"
        self.environment: dict[str, str] = {}
        self.url = ""
        self.secrets = Secrets("", "", {})
        self._keep = keep
        self._tell = tell
        # Asked now: later the environment of this process names whatever server is used.
        self._given_redis = os.environ.get("REDIS_URL")
        self._processes = Processes(self.logs)
        self._workers: dict[str, Process] = {}
        mark = _mark(data_dir) if keep else secrets.token_hex(4)
        self._prefix = f"kumiko-demo-{mark}"
        self._database = Database(
            os.environ.get("DATABASE_URL"),
            data_dir / "db.sqlite3",
            f"kumiko_demo_{mark}",
            keep=keep,
        )

    def __enter__(self) -> Site:
        self.logs.mkdir(parents=True, exist_ok=True)
        try:
            self._start_servers()
            self._fill_database()
            self._start_our_own()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if isinstance(error, Exception) and not isinstance(error, DemoFailed):
                # A request that failed, for one: why the web server died says more.
                self.require_alive()
        finally:
            self.close()

    def require_alive(self) -> None:
        """Raise ``DemoFailed`` if a process has ended by itself."""
        self._processes.require_alive()

    def last_words(self) -> str:
        """The last lines of the workers."""
        return "\n".join(f"The {p.name}:\n{p.tail()}" for p in self._workers.values())

    def stop_workers(self) -> dict[str, int | None]:
        """Stop the workers as a deployment does, and return their exit codes by lane."""
        self._processes.stop(*self._workers.values())
        return {lane: process.exit_code for lane, process in self._workers.items()}

    def close(self) -> None:
        """End all processes and, unless it is kept, remove what they have left behind."""
        try:
            self._processes.stop_all()
        finally:
            if not self._keep and self.environment:
                if self._given_redis:
                    delete_keys(self._given_redis, self._prefix)
                self._database.remove()

    def _start_servers(self) -> None:
        redis_url, whose = self._given_redis, "yours"
        if not redis_url:
            redis_url = start_redis(self._processes, self.data_dir / "redis", keep=self._keep)
            whose = "embedded"
        self._tell(f"Redis      {describe(redis_url)} ({whose})")
        self._database.create()
        self._tell(f"Database   {self._database.describe()}")
        self.environment = {
            "DJANGO_SETTINGS_MODULE": "example_project.settings",
            "DATA_DIR": str(self.data_dir),
            "REDIS_URL": redis_url,
            "DATABASE_URL": self._database.url,
            "QUEUE_PREFIX": self._prefix,
            "PYTHONUNBUFFERED": "1",
        }

    def _fill_database(self) -> None:
        started = time.monotonic()
        self._manage("migrate", "--verbosity", "0")
        made: dict[str, Any] = json.loads(self._manage("seed"))
        admin = made["admin"]
        self.secrets = Secrets(admin["user"], admin["password"], made["api_keys"])
        seconds = time.monotonic() - started
        self._tell(
            f"Data       migrated, {len(self.secrets.api_keys)} tenants seeded ({seconds:.1f} s)"
        )

    def _start_our_own(self) -> None:
        for lane in LANES:
            arguments = ["runjobs", "--lane", lane, "--grace", str(GRACE_SECONDS)]
            process = self._start(f"worker for lane {lane}", *arguments)
            self._workers[lane] = process
            self._tell(f"Worker     manage.py {' '.join(arguments)} (pid {process.pid})")
        port = _port(USUAL_PORT if self._keep else None)
        self.url = f"http://127.0.0.1:{port}"
        # DEBUG lets Django's own server deliver the admin's style sheets.
        web = self._start("web server", "runserver", "--noreload", f"127.0.0.1:{port}", DEBUG="on")
        wait_for_web(self.url, self._processes)
        self._tell(f"Web        {self.url} (pid {web.pid})")

    def _start(self, name: str, *arguments: str, **extra: str) -> Process:
        command = [sys.executable, "manage.py", *arguments]
        return self._processes.start(name, command, {**os.environ, **self.environment, **extra})

    def _manage(self, *arguments: str) -> str:
        """Run a management command to its end and return what it wrote."""
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        if done.returncode:
            raise DemoFailed(f"manage.py {arguments[0]} failed:\n{done.stderr.strip()}")
        return done.stdout


def wait_for_web(url: str, processes: Processes) -> None:
    """Wait until the web server answers.

    Raises:
        DemoFailed: It does not, or a process has ended.
    """
    deadline = time.monotonic() + WEB_SECONDS
    while True:
        processes.require_alive()
        try:
            with urllib.request.urlopen(f"{url}/admin/login/", timeout=5):  # noqa: S310
                return
        except OSError:
            if time.monotonic() > deadline:
                raise DemoFailed(f"{url} does not answer after {WEB_SECONDS} s") from None
        time.sleep(0.05)


def _mark(data_dir: Path) -> str:
    """The same for the same folder, so that a kept site finds its queues and tables again."""
    return hashlib.sha256(str(data_dir.resolve()).encode()).hexdigest()[:8]


def _port(preferred: int | None) -> int:
    if preferred is not None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", preferred)) != 0:
                return preferred
    return free_port()
