"""Real processes: workers, management commands, scripts.

They run with this Python, from the root of the repository, under ``tests.settings``, and see the
Redis, the queue prefix, the other ``KUMIKO`` settings and the test database that hold in the test
at the moment when they are started. Django commands start warm (see ``warm``). What a worker writes
(both streams) goes to a file, and whatever fails here shows it.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from django.conf import settings
from django.db import connection

from tests.helpers import kumiko_settings, warm
from tests.helpers.valkey import freeze_process
from tests.helpers.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
LANES: Mapping[str, tuple[str, ...]] = {
    "api": ("api",),
    "worker": ("worker",),
    "all": ("api", "worker"),
}
OUTPUT_SHOWN = 20_000


def child_environment(overrides: Mapping[str, str] | None = None) -> dict[str, str]:
    """Build the environment of a process that a test starts."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("KUMIKO_")},
        **kumiko_settings.to_environment(settings.KUMIKO),
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "KUMIKO_TEST_DATABASE_NAME": str(connection.settings_dict["NAME"]),
        "KUMIKO_TEST_CHILD": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        **(overrides or {}),
    }


def run_django(
    *arguments: str, env: Mapping[str, str] | None = None, timeout: float = 30
) -> subprocess.CompletedProcess[str]:
    """Run a management command to its end: ``run_django("runjobs", "--check").returncode``.

    Both streams are text in the result; any exit code is fine with this function.
    """
    command = [sys.executable, "-m", "django", *arguments]
    with tempfile.TemporaryDirectory() as folder:
        outputs = Path(folder, "stdout"), Path(folder, "stderr")
        for output in outputs:
            output.touch()
        process = warm.start(command, child_environment(env), *outputs)
        if process is None:
            return _run(command, env, timeout)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise _still_running(command, timeout, *map(_text, outputs)) from None
        return subprocess.CompletedProcess(command, code, *map(_text, outputs))


def run_python(
    code: str, *, env: Mapping[str, str] | None = None, timeout: float = 30
) -> subprocess.CompletedProcess[str]:
    """Run a script in a fresh interpreter, without ``django.setup()``."""
    return _run([sys.executable, "-c", code], env, timeout)


def _run(
    command: list[str], env: Mapping[str, str] | None, timeout: float
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            cwd=ROOT,
            env=child_environment(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        streams = (_decoded(stream) for stream in (error.stdout, error.stderr))
        raise _still_running(command, timeout, *streams) from None


def _still_running(command: list[str], timeout: float, *streams: str) -> AssertionError:
    output = "\n".join(streams)
    return AssertionError(f"{command} was still running after {timeout:g} s:\n{output}")


class RunJobs:
    """A ``runjobs`` process. Tests get it from the fixture ``runjobs``, which also ends it.

    ::

        worker = runjobs("worker", concurrency=2)        # running and consuming
        record.dispatch({"key": "a"}, tenant_id="acme")
        wait_until(lambda: Effect.objects.filter(key="a").exists(), description="it ran")
        worker.terminate()
        assert worker.wait() == 0, worker.output()
    """

    def __init__(
        self,
        lane: str,
        output_file: Path,
        *,
        arguments: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ):
        self.lane = lane
        self.output_file = output_file
        self.command = [sys.executable, "-m", "django", "runjobs", "--lane", lane, *arguments]
        output_file.write_bytes(b"")
        environment = child_environment(env)
        started = warm.start(self.command, environment, output_file, output_file)
        self._process = started or self._start_cold(environment)

    def _start_cold(self, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with self.output_file.open("ab") as output:
            return subprocess.Popen(
                self.command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C in a terminal is for the tests, which then end their processes.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code, None while it runs, negative when a signal ended it."""
        return self._process.poll()

    @property
    def running(self) -> bool:
        return self.exit_code is None

    def output(self) -> str:
        """Give what the process has written so far to either stream."""
        return self.output_file.read_text(errors="replace")

    def wait_ready(self, timeout: float = 30) -> RunJobs:
        """Wait until the process consumes all its lanes; fail at once if it ends instead."""

        def ready() -> bool:
            if not self.running:
                raise AssertionError(self._told(f"ended with code {self.exit_code}, not ready"))
            consuming = set(re.findall(r"consuming lane (\w+)", self.output()))
            return consuming.issuperset(LANES[self.lane])

        return self._waited(ready, timeout, "was not consuming")

    def wait_output(self, pattern: str, timeout: float = 10) -> RunJobs:
        """Wait until the process has written something that matches the regular expression."""
        return self._waited(
            lambda: re.search(pattern, self.output()), timeout, f"did not write {pattern!r}"
        )

    def wait(self, timeout: float = 30) -> int:
        """Wait for its end and give the exit code; if it hangs, show where each thread stands."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._dump_threads()
            raise AssertionError(self._told(f"was still running after {timeout:g} s")) from None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process alone."""
        assert self.running, self._told(
            f"ended with code {self.exit_code}; no {number.name} for it"
        )
        os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to stop (SIGTERM)."""
        self.signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it (SIGKILL), as the kernel does when memory runs out, and wait for its end."""
        self.signal(signal.SIGKILL)
        self._process.wait()

    def freeze(self) -> None:
        """Stop it (SIGSTOP): it holds its connections and does nothing, not even renew locks."""
        freeze_process(self.pid)

    def thaw(self) -> None:
        """Let a frozen process go on."""
        self.signal(signal.SIGCONT)

    def stop_frozen(self) -> None:
        """Kill a frozen process: what it held is never given back."""
        self.kill()

    def close(self) -> None:
        """End it and all that it has started, whatever state they are in."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def _waited(self, predicate: Callable[[], object], timeout: float, what: str) -> RunJobs:
        try:
            wait_until(predicate, description=what, timeout=timeout)
        except AssertionError as error:
            if self.running:
                raise AssertionError(self._told(f"{what} within {timeout:g} s")) from error
            raise
        return self

    def _dump_threads(self) -> None:
        """Let the process write the stack of every thread to its output (see tests.settings)."""
        os.kill(self.pid, signal.SIGUSR2)
        os.kill(self.pid, signal.SIGCONT)
        deadline = time.monotonic() + 3
        while self.running and time.monotonic() < deadline:
            if "most recent call first" in self.output():
                break
            time.sleep(0.02)

    def _told(self, what: str) -> str:
        return (
            f"{' '.join(self.command[1:])} (pid {self.pid}) {what}. Its output:\n"
            f"{self.output()[-OUTPUT_SHOWN:]}"
        )


def _text(path: Path) -> str:
    return path.read_text(errors="replace")


def _decoded(stream: bytes | str | None) -> str:
    if isinstance(stream, bytes):
        return stream.decode(errors="replace")
    return stream or ""
