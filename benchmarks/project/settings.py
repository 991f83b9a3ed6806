"""Settings of every process of the benchmarks; addresses come from the environment.

``BENCH_DATABASE`` says which of the two databases is the default one. Both are configured alike
for all sides: connections stay open, ``DEBUG`` is off, nothing is logged below warnings.
"""

from __future__ import annotations

import os
from typing import Any

import environ

env = environ.Env()

SECRET_KEY = "for-benchmarks-only"
DEBUG = False
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "benchmarks.project",
    # Celery's processes have an environment of their own, without our package.
    "django_celery_results" if env.bool("BENCH_CELERY", default=False) else "kumiko_django",
]


def _databases() -> dict[str, dict[str, Any]]:
    postgres: dict[str, Any] = env.db_url("BENCH_POSTGRES", default="postgres://nobody@/none")
    sqlite: dict[str, Any] = env.db_url("BENCH_SQLITE", default="sqlite:///:memory:")
    sqlite["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
    both = {"postgres": postgres, "sqlite": sqlite}
    for database in both.values():
        database["CONN_MAX_AGE"] = None
    return {"default": dict(both[env.str("BENCH_DATABASE", default="sqlite")]), **both}


DATABASES = _databases()

KUMIKO = {"REDIS_URL": env.str("REDIS_URL", default="redis://127.0.0.1:6379/0")}
if "BENCH_TENANTS" in os.environ:
    KUMIKO["TENANTS"] = "benchmarks.project.tenants.active_tenants"

LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"stderr": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
}
