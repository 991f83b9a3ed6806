"""The app's configuration: it registers its jobs and, in a process that shall die, the place."""

from __future__ import annotations

import datetime as dt
import os

from django.apps import AppConfig


class ChaosConfig(AppConfig):
    """Jobs only; what their handlers leave is counted in Redis."""

    name = "tests.chaos"
    label = "chaos"

    def ready(self) -> None:
        """Add the jobs, and wrap what ``KUMIKO_TEST_STEP`` names."""
        from kumiko_django import registry
        from tests.chaos.jobs import JOBS

        for job in JOBS.values():
            registry.register(job)
        if step := os.environ.get("KUMIKO_TEST_STEP"):
            from tests.chaos import steps

            steps.install(step)
        if seconds := os.environ.get("KUMIKO_TEST_RECOVERY_SECONDS"):
            from kumiko_django.worker import recovery

            # What a dead worker has left is looked for as often, so that tests need not wait long.
            recovery.INTERVAL = float(seconds)  # type: ignore[misc]
            recovery.AGE = dt.timedelta(seconds=float(seconds))  # type: ignore[misc]
