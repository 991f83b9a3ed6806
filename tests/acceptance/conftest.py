"""Acceptance tests talk to real processes, so all they write must be committed."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies in this folder."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.acceptance)


@pytest.fixture(autouse=True)
def _committed(transactional_db: None) -> None:
    """Give every test the database with real transactions."""
