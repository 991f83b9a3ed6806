"""``tests.settings`` with this app: for processes, ``env={"DJANGO_SETTINGS_MODULE": SETTINGS}``."""

from __future__ import annotations

import os

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES, INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.integration.worker.extra"]

if os.environ.get("KUMIKO_TEST_CONN_MAX_AGE") == "-1":
    # For ever; a number is all that the variable can say.
    DATABASES["default"]["CONN_MAX_AGE"] = None
