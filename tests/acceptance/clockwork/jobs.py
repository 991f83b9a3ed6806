"""The job of this app."""

from __future__ import annotations

from typing import Any

from kumiko_django import Every, JobContext, job
from tests.acceptance.clockwork import EVERY_SECONDS


@job(trigger=Every(EVERY_SECONDS), tenant="system", catch_up="all")
async def tick(payload: dict[str, Any], ctx: JobContext) -> None:
    """Do nothing; the run's record is what counts."""
