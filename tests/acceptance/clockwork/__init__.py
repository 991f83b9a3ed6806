"""An app whose job a clock starts, for worker processes of their own."""

from __future__ import annotations

SETTINGS = "tests.acceptance.clockwork.settings"
EVERY_SECONDS = 0.5
