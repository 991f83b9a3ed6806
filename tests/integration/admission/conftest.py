"""Fixtures of the tests of the door."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from kumiko_django.definitions.registry import registry
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.queues import QueueState
from tests.integration.admission.kept import Kept, Worker
from tests.integration.worker.conftest import define, host

__all__ = ["define", "host"]


@pytest.fixture
def kept(raw_redis: redis.Redis, queue_prefix: str) -> Kept:
    """What the door keeps in Redis."""
    return Kept(raw_redis, queue_prefix)


@pytest.fixture
def queue(queue_state: QueueStateFactory) -> QueueState:
    return queue_state("worker")


@pytest.fixture
def worker() -> Iterator[Worker]:
    """A worker whose steps the test takes one by one: ``worker.fetch()``, ``.claim(x)``, ..."""
    made = Worker()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _thawed() -> Iterator[None]:
    with registry.isolated():
        yield
