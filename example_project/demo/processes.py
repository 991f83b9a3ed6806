"""Processes that end when the demo ends, however it ends, and whose last words are shown."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
TAIL_LINES: Final = 25
STOP_SECONDS: Final = 20.0


class DemoFailed(Exception):
    """Something did not come out as told; the message says what."""


class Process:
    """One process, in a session of its own: Ctrl-C reaches the demo, which then ends this."""

    def __init__(
        self, name: str, command: Sequence[str], log_file: Path, env: Mapping[str, str]
    ) -> None:
        self.name = name
        self._log_file = log_file
        with log_file.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative if a signal ended it."""
        return self._process.poll()

    def tail(self) -> str:
        """The last lines that it wrote."""
        lines = self._log_file.read_text(errors="replace").splitlines()
        return "\n".join(f"    {line}" for line in lines[-TAIL_LINES:]) or "    (nothing)"

    def ask_to_stop(self) -> None:
        if self.exit_code is None:
            self._process.terminate()

    def wait(self, seconds: float) -> int:
        """Wait for its end, and enforce it when the time is over."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.wait()

    def kill(self) -> None:
        """End it, and what it has started itself, at once."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


class Processes:
    """All processes of the demo."""

    def __init__(self, log_dir: Path) -> None:
        self._log_dir = log_dir
        self._running: list[Process] = []

    def start(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> Process:
        """Start a process; it writes to ``<name>.log``."""
        log_file = self._log_dir / f"{name.replace(' ', '-')}.log"
        process = Process(name, command, log_file, env)
        self._running.append(process)
        return process

    def require_alive(self) -> None:
        """See to it that none has ended by itself.

        Raises:
            DemoFailed: One has; the message has its exit code and its last lines.
        """
        for process in self._running:
            if process.exit_code is not None:
                raise DemoFailed(
                    f"The {process.name} (pid {process.pid}) ended by itself with code "
                    f"{process.exit_code}. Its last lines:\n{process.tail()}"
                )

    def stop(self, *processes: Process, seconds: float = STOP_SECONDS) -> None:
        """End some processes, all at the same time; one that takes too long is killed."""
        deadline = time.monotonic() + seconds
        try:
            for process in processes:
                process.ask_to_stop()
            for process in processes:
                process.wait(max(0.1, deadline - time.monotonic()))
        except BaseException:  # Ctrl-C once more: at once, then
            for process in processes:
                process.kill()
            raise
        finally:
            self._running = [process for process in self._running if process not in processes]

    def stop_all(self) -> None:
        """End what still runs; the first one that was started, the Redis server, after the rest."""
        try:
            self.stop(*self._running[1:])
        finally:
            self.stop(*self._running)
