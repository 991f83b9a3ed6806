"""Fixtures of the tests of handlers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kumiko_django.handlers.registry import handlers
from kumiko_django.types.hatches import HatchUse
from tests.unit.handlers.kit import uses_told


@pytest.fixture(autouse=True)
def _no_others() -> Iterator[None]:
    """What a test registers is forgotten."""
    with handlers.isolated():
        yield


@pytest.fixture
def told() -> Iterator[list[HatchUse]]:
    """Give what is reported of escape hatches."""
    with uses_told() as uses:
        yield uses
