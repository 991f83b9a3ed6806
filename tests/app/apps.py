"""The app's configuration."""

from __future__ import annotations

from django.apps import AppConfig


class TestAppConfig(AppConfig):
    """An app as a host project has one: models, and jobs in ``jobs.py``."""

    name = "tests.app"
    label = "testapp"
    default_auto_field = "django.db.models.BigAutoField"
