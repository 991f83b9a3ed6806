"""The app's configuration."""

from __future__ import annotations

from django.apps import AppConfig


class BootConfig(AppConfig):
    """Jobs only; what they leave are the effects of the test app."""

    name = "tests.integration.boot"
    label = "bootapp"
