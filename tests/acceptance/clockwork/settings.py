"""``tests.settings`` with this app: for processes, ``env={"DJANGO_SETTINGS_MODULE": SETTINGS}``."""

from __future__ import annotations

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.acceptance.clockwork"]
