"""The run's services are ended by the process that started them, and only by that one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.helpers.processes import run_python
from tests.helpers.services import Services

pytestmark = pytest.mark.once

FORK = """
import os, sys
from tests.helpers.services import Services
from tests.helpers.valkey import Valkey

services = Services()
services.start()
own = Valkey().start()
child = os.fork()
if child == 0:
    own.close()
    sys.exit(0)
os.waitpid(child, 0)
import redis
with redis.Redis.from_url(os.environ["REDIS_URL"]) as shared, own.client() as private:
    print(shared.ping(), private.ping(), os.environ["REDIS_URL"], os.environ["DATABASE_URL"])
own.close()
"""


@pytest.mark.django_db
def test_a_forked_child_ends_nothing_and_the_parent_everything() -> None:
    """Workers and tests may fork; a child's exit handlers must not touch the parent's servers."""
    result = run_python(FORK, env={"REDIS_URL": "", "DATABASE_URL": ""})
    assert result.returncode == 0, result.stderr
    shared, private, redis_url, database_url = result.stdout.split()
    assert (shared, private) == ("True", "True")
    assert redis_url != os.environ["REDIS_URL"]
    assert not Path(database_url.removeprefix("sqlite:///")).parent.exists()


def test_what_the_user_names_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://users-own:6379/5")
    monkeypatch.setenv("DATABASE_URL", "postgres://me@users-own/app")
    services = Services()
    services.start()
    assert not services.owns_redis
    assert os.environ["REDIS_URL"] == "redis://users-own:6379/5"
    assert os.environ["DATABASE_URL"] == "postgres://me@users-own/app"
    services.close()


def test_an_unknown_database_is_refused_with_the_known_ones(
    monkeypatch: pytest.MonkeyPatch, redis_url: str
) -> None:
    monkeypatch.setenv("REDIS_URL", redis_url)
    monkeypatch.delenv("DATABASE_URL")
    monkeypatch.setenv("KUMIKO_TEST_DATABASE", "oracle")
    services = Services()
    with pytest.raises(SystemExit, match="'oracle'; known are sqlite, postgres"):
        services.start()
    services.close()
