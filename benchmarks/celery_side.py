"""Celery with django-celery-results, in an environment of its own that is made when missing.

Its fast configuration: ``CELERY_DB_REUSE_MAX`` keeps database connections open, messages are
acknowledged early (its default), and tasks run in whichever pool is the fastest on this machine.
Like ours it records that a task has started (``task_track_started``) and its result.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

POOLS = ("prefork 16", "prefork 4", "threads 16")
"""Pools that are tried, with the number of tasks at a time: 16 processes are many for two cores."""
CONCURRENCY = 16
"""What it is compared with runs so many jobs at a time."""
APP = "benchmarks.sides.celery_app"
RESULTS_TABLE = "django_celery_results_taskresult"


def requirements() -> list[str]:
    """What is installed: the same Django and database driver as here, and the newest Celery."""
    same = [f"{name}=={version(name)}" for name in ("django", "psycopg", "psycopg-binary")]
    return [*same, "celery[redis]>=5.5", "django-celery-results>=2.6", "hiredis", "django-environ"]


def folder() -> Path:
    """Where the environment stands: in the user's cache, one for each set of requirements."""
    text = "\n".join([sys.version, *requirements()])
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "kumiko-django-bench" / f"celery-{digest}"


def python() -> str:
    """The interpreter of the environment."""
    return str(folder() / "bin" / "python")


def install() -> None:
    """Make the environment when it is missing.

    Raises:
        subprocess.CalledProcessError: It could not be made.
    """
    complete = folder() / ".complete"
    if complete.exists():
        return
    sys.stderr.write(f"installing Celery into {folder()}\n")
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder())], check=True)
    pip = [python(), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *requirements()], check=True)
    complete.touch()


def migrate() -> None:
    """Make the tables of its results in PostgreSQL."""
    environment = {**os.environ, "BENCH_CELERY": "1", "BENCH_DATABASE": "postgres"}
    command = [python(), "-m", "django", "migrate", "django_celery_results", "-v", "0"]
    subprocess.run(command, env=environment, check=True)


def versions() -> str:
    """What was installed, as the page says it."""
    code = (
        "from importlib.metadata import version as v;"
        "print(f\"Celery {v('celery')}, django-celery-results {v('django-celery-results')}, "
        "redis-py {v('redis')}\", end='')"
    )
    return subprocess.run([python(), "-c", code], check=True, capture_output=True, text=True).stdout


def worker_command(pool: str) -> list[str]:
    """The worker, with one of ``POOLS``."""
    name, concurrency = pool.split()
    options = ["--pool", name, "--concurrency", concurrency, "--loglevel", "ERROR"]
    return [python(), "-m", "celery", "-A", APP, "worker", *options]


def fill_command(jobs: int) -> list[str]:
    """The process that sends the tasks."""
    return [python(), "-m", APP, str(jobs)]
