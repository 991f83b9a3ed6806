"""Settings that only the type checker loads: the test suite's, with all other apps as well."""

from __future__ import annotations

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS

INSTALLED_APPS = [
    *INSTALLED_APPS,
    "example_project.tenants",
    "example_project.orders",
    "example_project.billing",
    "benchmarks.project",
]
