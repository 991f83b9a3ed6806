"""Fixtures of the tests that run a worker host in their own process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kumiko_django import JobDefinition
from kumiko_django.definitions.options import LANES, Lane
from kumiko_django.definitions.registry import registry
from kumiko_django.worker.config import HostConfig
from tests.helpers.waiting import witnesses
from tests.integration.worker.host_thread import Define, HostThread, StartHost


@pytest.fixture
def define() -> Iterator[Define]:
    """Register a handler for the length of the test: ``define(handler, retries=2)``."""
    with registry.isolated():

        def register(handler: Callable[..., Any], **options: Any) -> JobDefinition:
            return registry.register(
                JobDefinition(handler=handler, **{"app_label": "testapp", **options})
            )

        yield register


@pytest.fixture
def host(transactional_db: None, queue_prefix: str) -> Iterator[StartHost]:
    """Start a worker host in this process: ``host("worker", concurrency=2)``; ended afterwards."""
    started: list[HostThread] = []

    def start(
        *lanes: Lane, concurrency: int = 5, grace: float = 5, drain: bool = False
    ) -> HostThread:
        config = HostConfig(
            lanes=lanes or LANES, concurrency=concurrency, grace_seconds=grace, drain=drain
        )
        thread = HostThread(config)
        started.append(thread)
        witnesses.append(thread.seen)
        return thread.start()

    yield start
    for thread in started:
        witnesses.remove(thread.seen)
        if thread.running:
            thread.stop()
