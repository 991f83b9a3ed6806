"""Django processes that start warm: forked from a Python that has imported the packages already.

To import Django, bullmq, redis and pydantic takes most of a second of a core, and the suite starts
some hundreds of processes. So one process imports them and does nothing else: it has not read any
settings, has no threads and no connections. On request it forks, and what the child does from there
on is what ``python -m django`` does: settings, apps, command, exit code. The child has a session of
its own and is a child of the process that asked, which waits for it as for any other.

Linux only: elsewhere, and where this does not work, :func:`start` says so, and the caller starts a
Python as usual.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PRELOADED = (
    "bullmq",
    "redis.asyncio.sentinel",
    "pydantic",
    "cronsim",
    "psycopg",
    "environ",
    "django.contrib.admin.options",
    "django.contrib.staticfiles.storage",
    "django.core.management.commands.runserver",
    "django.db.models",
    "django.test.signals",
    "django.views.debug",
    "kumiko_django.broker.consumer",
    "kumiko_django.definitions.registry",
)
"""What needs no settings. Nothing of the tests, and not uvloop, which one of the passes hides."""
DJANGO = (sys.executable, "-m", "django")
PR_SET_CHILD_SUBREAPER = 36
POLL_SECONDS = 0.01


class WarmProcess:
    """The part of ``subprocess.Popen`` that tests need."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Give the exit code, None while it runs, negative when a signal ended it."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end.

        Raises:
            subprocess.TimeoutExpired: It still runs.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            time.sleep(POLL_SECONDS)
        return code


class Starter:
    """Asks the warm process for children, one at a time; it ends when this process does."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._server = subprocess.Popen(
            [DJANGO[0], "-m", "tests.helpers.warm"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"},
            start_new_session=True,
        )

    def start(
        self, arguments: Sequence[str], environment: Mapping[str, str], outputs: Sequence[str]
    ) -> WarmProcess | None:
        """Start ``python -m django`` with these arguments; None where that does not work."""
        asked = {
            "arguments": list(arguments),
            "environment": dict(environment),
            "outputs": list(outputs),
        }
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        # For this moment, so that the child becomes ours when the process between ends.
        if self._libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            return None
        try:
            self._server.stdin.write(json.dumps(asked).encode() + b"\n")
            self._server.stdin.flush()
            pid = int(self._server.stdout.readline())
        except (OSError, ValueError):
            return None
        finally:
            self._libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        process = WarmProcess(pid)
        try:
            process.poll()
        except ChildProcessError:  # it has not become ours
            os.kill(pid, signal.SIGKILL)
            return None
        return process

    def close(self) -> None:
        """End the warm process; its children go on."""
        with self._server:
            self._server.kill()


_lock = threading.Lock()
_starter: Starter | None = None
_works = sys.platform == "linux"


def start(
    command: Sequence[str], environment: Mapping[str, str], stdout: Path, stderr: Path
) -> WarmProcess | None:
    """Start a Django command whose output is appended to files.

    Args:
        command: ``[sys.executable, "-m", "django", ...]``.
        environment: All of its environment.
        stdout: Exists already.
        stderr: Exists already, and may be the same.

    Returns:
        The process, or None where there are no warm starts, or none with this Python or
        environment.
    """
    global _starter, _works
    if not _works or tuple(command[:3]) != DJANGO or _changes_python(environment):
        return None
    with _lock:  # tests start processes in threads, too
        if _starter is None:
            _starter = Starter()
        process = _starter.start(command[3:], environment, [str(stdout), str(stderr)])
        _works = process is not None
    return process


def close() -> None:
    """End what :func:`start` has started for itself."""
    global _starter
    if _starter is not None:
        _starter.close()
        _starter = None


def _changes_python(environment: Mapping[str, str]) -> bool:
    """Whether the interpreter itself would behave differently, beyond what all children have."""
    names = {name for name in {*environment, *os.environ} if name.startswith(("PYTHON", "LD_"))}
    usual = {"PYTHONUNBUFFERED", "PYTHONFAULTHANDLER"}
    return any(environment.get(name) != os.environ.get(name) for name in names - usual)


# ------------------------------------------------------------------------------- the warm process


def serve() -> dict[str, Any] | None:
    """Fork as asked; return in each child with what it is to be, and here when nobody asks more."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.dup(1)
    _redirect([os.devnull, os.devnull])
    for request in requests:
        reader, writer = os.pipe()
        between = os.fork()
        if between == 0:
            if os.fork() != 0:
                os._exit(0)
            os.setsid()
            os.write(writer, str(os.getpid()).encode())
            for descriptor in (requests.fileno(), replies, reader, writer):
                os.close(descriptor)
            return dict(json.loads(request))
        os.close(writer)
        pid = os.read(reader, 20)
        os.close(reader)
        os.waitpid(between, 0)
        os.write(replies, pid + b"\n")
    return None


def become(request: Mapping[str, Any]) -> None:
    """Be the process that was asked for."""
    os.environ.clear()
    os.environ.update(request["environment"])
    _redirect(request["outputs"])
    sys.argv = ["django", *request["arguments"]]
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


def _redirect(outputs: Sequence[str]) -> None:
    """Read nothing, and write to the ends of these files."""
    for number, path in enumerate([os.devnull, *outputs]):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND if number else os.O_RDONLY)
        os.dup2(descriptor, number)
        os.close(descriptor)


if __name__ == "__main__":
    for name in PRELOADED:
        importlib.import_module(name)
    assert threading.active_count() == 1, "a process with threads cannot be forked"
    if (wanted := serve()) is not None:
        become(wanted)
