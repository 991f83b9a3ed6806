"""Fixtures of the tests of events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kumiko_django.signals import dispatch_failed
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.queues import QueueState
from tests.integration.worker.conftest import define, host

__all__ = ["define", "host"]


@pytest.fixture
def queue(queue_state: QueueStateFactory) -> QueueState:
    """Give the worker lane's queue."""
    return queue_state("worker")


@pytest.fixture
def told() -> Iterator[list[dict[str, Any]]]:
    """Give what ``dispatch_failed`` has told."""
    received: list[dict[str, Any]] = []

    def receiver(signal: object, **arguments: Any) -> None:
        received.append(arguments)

    dispatch_failed.connect(receiver)
    yield received
    dispatch_failed.disconnect(receiver)
