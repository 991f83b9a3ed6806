"""``tests.settings`` with this app, whose jobs start with every worker."""

from __future__ import annotations

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.integration.boot"]
