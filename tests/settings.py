"""Settings of the test suite and of every process that a test starts.

All of it comes from the environment, so that a ``runjobs`` that a test starts sees the same Redis,
the same (test) database and the same queue prefix: ``tests.helpers.processes.child_environment``
puts there what holds in the test at that moment, overridden settings included.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import environ

from tests.helpers import kumiko_settings

if "PYTEST_VERSION" in os.environ:
    # Here, because pytest-django reads the settings before any conftest of ours is imported. In a
    # child process of a test both addresses are in the environment and nothing is started.
    from tests.helpers.services import start_for_run

    start_for_run()

env = environ.Env()

SECRET_KEY = "only-for-tests"
DEBUG = False
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "tests.urls"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "kumiko_django",
    "tests.app",
]

MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
STATIC_URL = "/static/"

LANGUAGE_CODE = "en"
USE_TZ = True
TIME_ZONE = "Europe/Berlin"
# The test app marks personal fields; the middleware is for the tests that send requests.
SILENCED_SYSTEM_CHECKS = ["kumiko.W013"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"


def _database() -> dict[str, Any]:
    fallback = f"sqlite:///{Path(tempfile.gettempdir()) / 'kumiko-outside-of-tests.sqlite3'}"
    database: dict[str, Any] = env.db_url("DATABASE_URL", default=fallback)
    if database["ENGINE"] == "django.db.backends.sqlite3":
        # In memory no other process would see it.
        database["TEST"] = {"NAME": f"{database['NAME']}.test"}
        database["OPTIONS"] = {
            "transaction_mode": "IMMEDIATE",
            "timeout": env.float("KUMIKO_TEST_SQLITE_TIMEOUT", default=20.0),
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        }
    # What pytest-django created, where a test starts a process.
    database["NAME"] = env.str("KUMIKO_TEST_DATABASE_NAME", default=database["NAME"])
    database["CONN_MAX_AGE"] = env.int("KUMIKO_TEST_CONN_MAX_AGE", default=0)
    return database


DATABASES = {"default": _database()}

KUMIKO = kumiko_settings.from_environment(os.environ)

CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    # For KUMIKO["CACHE_ALIAS"].
    "redis": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": env.str("REDIS_URL", default=kumiko_settings.FALLBACK_REDIS_URL),
    },
}

LOGGING: dict[str, Any] = {"version": 1, "disable_existing_loggers": False}
if env.bool("KUMIKO_TEST_WITHOUT_UVLOOP", default=False):
    sys.modules["uvloop"] = None  # type: ignore[assignment]  # (as if it were not installed)

if env.bool("KUMIKO_TEST_CHILD", default=False):
    # A process that a test has started: it logs to stderr, and shows its threads when asked to.
    faulthandler.register(signal.SIGUSR2)
    LOGGING |= {
        "formatters": {
            "line": {"format": "%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s"}
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {
            "handlers": ["stderr"],
            "level": env.str("KUMIKO_TEST_LOG_LEVEL", default="INFO"),
        },
    }
