"""``tests.settings`` with this app: for processes, ``env={"DJANGO_SETTINGS_MODULE": SETTINGS}``."""

from __future__ import annotations

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS, LOGGING

INSTALLED_APPS = [*INSTALLED_APPS, "tests.chaos"]

# A line for each of thousands of runs would say nothing and cost the load that is wanted.
LOGGING["loggers"] = {"kumiko_django.run": {"level": "ERROR"}}
