"""What the kill tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django import Settings

from kumiko_django.definitions.registry import registry
from tests.chaos.jobs import JOBS

HERE = Path(__file__).parent
LOCK_SECONDS = 1.0
KEPT_SECONDS = 24 * 60 * 60


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies in this folder: it starts real processes."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.acceptance)


@pytest.fixture(autouse=True)
def _short_locks(settings: Settings, queue_prefix: str) -> None:
    """A dead worker's jobs are taken up soon, and completed ones stay to be counted."""
    settings.KUMIKO = {
        **settings.KUMIKO,
        "LOCK_SECONDS": LOCK_SECONDS,
        "COMPLETED_AGE": KEPT_SECONDS,
    }


@pytest.fixture(autouse=True)
def _jobs(transactional_db: None) -> Iterator[None]:
    """Make the jobs known here, for dispatching; worker processes have them by their settings."""
    with registry.isolated():
        for job in JOBS.values():
            registry.register(job)
        yield
