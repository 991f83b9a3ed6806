"""Worker processes: started, looked into from outside, ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from benchmarks.variants import Variant

STOP_SECONDS = 30.0
SHOWN = 5000


@contextlib.contextmanager
def worker(variant: Variant) -> Iterator[psutil.Process]:
    """Run the worker and end it; what it wrote is shown when something goes wrong."""
    with tempfile.TemporaryFile() as output:
        started = subprocess.Popen(
            variant.worker_command(),
            env=variant.environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            yield psutil.Process(started.pid)
        except Exception:
            output.seek(0)
            sys.stderr.write(output.read().decode(errors="replace")[-SHOWN:])
            raise
        finally:
            _end(started)


def _end(started: subprocess.Popen[bytes]) -> None:
    started.terminate()
    try:
        started.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def is_alive(process: psutil.Process) -> bool:
    """Whether it has not ended, not even as a zombie that we have not waited for."""
    return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)


def cpu_seconds(process: psutil.Process) -> float:
    """User and system time of a worker and the processes below it."""
    total = 0.0
    for one in [process, *process.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            total += times.user + times.system
    return total


def peak_memory(process: psutil.Process) -> int:
    """Most resident memory a process has had, in bytes; where there is no /proc, what it has."""
    status = Path(f"/proc/{process.pid}/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return int(process.memory_info().rss)


def loop_of(process: psutil.Process) -> str:
    """Name of the event loop whose machine code the process has loaded."""
    try:
        paths = [mapped.path for mapped in process.memory_maps()]
    except AttributeError:  # macOS does not tell
        from benchmarks.loops import LOOP

        return LOOP
    return "uvloop" if any("uvloop" in path for path in paths) else "asyncio"
