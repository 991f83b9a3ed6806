"""A second app of the host project, for worker processes: handlers that behave badly, and many."""

from __future__ import annotations

SETTINGS = "tests.integration.worker.extra.settings"
FAILING = 10
"""Every tenth job of ``numbered`` and ``numbered-async`` fails."""
