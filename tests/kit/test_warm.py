"""Workers start warm: forked from a Python that has the packages, and as good as a fresh one."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.helpers import warm
from tests.helpers.processes import child_environment, run_django, run_python
from tests.helpers.warm import DJANGO, WarmProcess

pytestmark = pytest.mark.once

SHOW = """
import json, os, sys, threading, time
from django.conf import settings
print(json.dumps({
    "prefix": settings.KUMIKO["QUEUE_PREFIX"],
    "environment": os.environ.get("KUMIKO_TEST_WARM"),
    "parent": os.getppid(), "session": os.getsid(0), "pid": os.getpid(),
    "arguments": sys.argv[:2], "threads": threading.active_count(),
    "descriptors": [os.readlink(f"/proc/self/fd/{fd}") for fd in (0, 1, 2)],
}))
print("to stderr", file=sys.stderr)
sys.exit(3)
"""


@pytest.fixture
def output(tmp_path: Path) -> Path:
    path = tmp_path / "output"
    path.write_bytes(b"")
    return path


def start(output: Path, code: str, **environment: str) -> WarmProcess:
    command = [*DJANGO, "shell", "--no-imports", "-v", "0", "-c", code]
    process = warm.start(command, child_environment(environment), output, output)
    assert process is not None
    return process


def test_a_warm_process_is_what_a_fresh_one_would_be(
    output: Path, queue_prefix: str, transactional_db: None
) -> None:
    """Its own settings, environment, session, streams and exit code; and it is a child of ours."""
    process = start(output, SHOW, KUMIKO_TEST_WARM="yes")
    assert process.wait(20) == 3, output.read_text()
    shown, error = output.read_text().splitlines()
    assert error == "to stderr"
    assert json.loads(shown) == {
        "prefix": queue_prefix,
        "environment": "yes",
        "parent": os.getpid(),
        "session": process.pid,
        "pid": process.pid,
        "arguments": ["django", "shell"],
        "threads": 1,
        "descriptors": ["/dev/null", str(output), str(output)],
    }


def test_nothing_of_the_tests_or_of_the_settings_is_there_before() -> None:
    """What a process decides when it imports its settings is not decided for it."""
    code = f"""
import importlib, sys
for name in {warm.PRELOADED!r}:
    importlib.import_module(name)
from django.apps import apps
from django.conf import settings
print(settings.configured, apps.ready, "uvloop" in sys.modules, "tests.settings" in sys.modules)
"""
    result = run_python(code)
    assert result.stdout.split() == ["False"] * 4, result.stderr


def test_it_can_be_killed_and_waited_for(output: Path) -> None:
    process = start(output, "import time; time.sleep(60)")
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait(20) == -signal.SIGKILL


def test_another_python_is_not_started_warm(output: Path) -> None:
    """Neither another interpreter, nor this one told to behave differently."""
    environment = child_environment()
    assert warm.start(["python", "-m", "django", "check"], environment, output, output) is None
    changed = {**environment, "PYTHONHASHSEED": "1"}
    assert warm.start([*DJANGO, "check"], changed, output, output) is None


@pytest.mark.django_db(transaction=True)
def test_a_command_that_hangs_is_ended_and_shown() -> None:
    """Both streams, apart, and what it had started with it."""
    code = "import sys, time; print('out'); print('err', file=sys.stderr); time.sleep(60)"
    with pytest.raises(AssertionError, match=r"still running after 2 s:\nout\n\nerr"):
        run_django("shell", "--no-imports", "-v", "0", "-c", code, timeout=2)
