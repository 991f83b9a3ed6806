"""A registry in which a test may define jobs, and which forgets them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kumiko_django.definitions.registry import Registry, registry


@pytest.fixture
def jobs() -> Iterator[Registry]:
    """Give the process's registry, open for the length of the test."""
    with registry.isolated():
        yield registry
