"""The app's configuration."""

from __future__ import annotations

from django.apps import AppConfig


class ClockworkConfig(AppConfig):
    """One job, and its schedule."""

    name = "tests.acceptance.clockwork"
    label = "clockwork"
