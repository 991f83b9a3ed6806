"""Boot jobs and gates in real processes, with an app that has some."""

from __future__ import annotations

SETTINGS = "tests.integration.boot.settings"
