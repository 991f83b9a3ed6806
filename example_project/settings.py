"""Settings of the example. What differs between machines comes from the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import environ

env = environ.Env()

BASE_DIR = Path(__file__).resolve().parent.parent
DATA_DIR = Path(env.str("DATA_DIR", default=str(BASE_DIR / ".demo")))
"""Database file and uploads; ``make serve`` keeps its data in the same place."""
DATA_DIR.mkdir(parents=True, exist_ok=True)

SECRET_KEY = env.str("SECRET_KEY", default="for-the-example-only-choose-your-own-elsewhere")
DEBUG = env.bool("DEBUG", default=False)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1"])
ROOT_URLCONF = "example_project.urls"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "kumiko_django",
    "example_project.tenants",
    "example_project.orders",
    "example_project.billing",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "kumiko_django.tenancy.middleware.RequestScopeMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
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


def _database() -> dict[str, Any]:
    """SQLite, unless ``DATABASE_URL`` names something else, e.g. a PostgreSQL."""
    database: dict[str, Any] = env.db_url(
        "DATABASE_URL", default=f"sqlite:///{DATA_DIR / 'db.sqlite3'}"
    )
    if database["ENGINE"] == "django.db.backends.sqlite3":
        # Web server and workers write to one file: readers do not wait (WAL), writers wait for
        # one another instead of failing (timeout), from the start of a transaction (IMMEDIATE).
        database["OPTIONS"] = {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        }
    return database


DATABASES = {"default": _database()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

KUMIKO = {
    "REDIS_URL": env.str("REDIS_URL", default="redis://127.0.0.1:6379/0"),
    "QUEUE_PREFIX": env.str("QUEUE_PREFIX", default="kumiko-example"),
    "TENANTS": "example_project.tenants.models.active_tenant_ids",
    "REQUEST_TENANT": "example_project.tenants.access.tenant_of",
    "CONFIG": {"days_to_pay": 14},
}

STATIC_URL = "static/"
MEDIA_ROOT = DATA_DIR / "media"

LANGUAGE_CODE = "en"
TIME_ZONE = "Europe/Berlin"
USE_TZ = True
