"""Fixtures of the tests of handlers with a queue."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kumiko_django.handlers.registry import handlers
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.queues import QueueState
from tests.integration.worker.conftest import define, host

__all__ = ["define", "host"]


@pytest.fixture(autouse=True)
def _no_others() -> Iterator[None]:
    """What a test registers is forgotten."""
    with handlers.isolated():
        yield


@pytest.fixture
def queue(queue_state: QueueStateFactory) -> QueueState:
    """Give the worker lane's queue."""
    return queue_state("worker")
