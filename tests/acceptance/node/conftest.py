"""A Node process beside our worker, on the same queues."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.node import Node
from tests.integration.worker.conftest import define, host

__all__ = ["define", "host"]

CLIENTS = {"bullmq": "bullmq 6", "bullmq-5": "bullmq 5"}


@pytest.fixture(scope="session")
def node_processes(redis_url: str) -> Iterator[dict[str, Node]]:
    """The processes that run, by their package."""
    processes: dict[str, Node] = {}
    yield processes
    for process in processes.values():
        process.close()


@pytest.fixture(params=list(CLIENTS), ids=list(CLIENTS.values()))
def node(
    request: pytest.FixtureRequest,
    node_processes: dict[str, Node],
    redis_url: str,
    queue_prefix: str,
) -> Iterator[Node]:
    """A Node process on the queues of this test: ``node.run("...")``."""
    process = node_processes.get(request.param)
    if process is None or not process.running:
        process = node_processes[request.param] = Node(request.param, redis_url)
    process.prefix = queue_prefix
    yield process
    process.reset()
