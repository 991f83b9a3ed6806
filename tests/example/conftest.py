"""The example as it runs: its own workers and web server, on a database and a Redis of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from example_project.demo.client import Client
from example_project.demo.site import Site
from tests.helpers.waiting import wait_until

RUN_SECONDS = 60

EndOf: TypeAlias = Callable[[str, str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Run the example for the tests of a module.

    Its Redis is embedded, since a test that shares the run's Redis must leave no key there. On
    PostgreSQL it has a schema of its own beside the test database.
    """
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("REDIS_URL", raising=False)
        if os.environ["DATABASE_URL"].startswith("sqlite"):
            environment.delenv("DATABASE_URL")
        told: list[str] = []
        with Site(tmp_path_factory.mktemp("site"), keep=False, tell=told.append) as running:
            yield running


@pytest.fixture
def client(site: Site) -> Client:
    """Talk to the site with every tenant's key."""
    return Client(site.url, site.secrets.api_keys)


@pytest.fixture
def end_of(site: Site, client: Client) -> EndOf:
    """Wait for the end of a tenant's job and return its runs, first attempt first."""

    def wait(tenant: str, job_id: str) -> list[dict[str, Any]]:
        def ended() -> list[dict[str, Any]] | None:
            site.require_alive()
            runs: list[dict[str, Any]] = client.get(tenant, f"jobs/{job_id}/").body["runs"]
            is_over = runs and (runs[-1]["final"] or runs[-1]["status"] == "completed")
            return runs if is_over else None

        runs = wait_until(ended, description="the job has ended", timeout=RUN_SECONDS, interval=0.1)
        assert runs
        return runs

    return wait
