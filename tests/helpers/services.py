"""The Valkey and the database that a whole test run works with.

``tests.settings`` asks for them when pytest loads it, before Django reads its settings, and puts
their addresses into the environment, where child processes find the same ones. What the user has
put there is used as it is::

    pytest                                          # embedded Valkey, SQLite
    KUMIKO_TEST_DATABASE=postgres pytest            # embedded Valkey, embedded PostgreSQL
    REDIS_URL=redis://localhost:6379/5 DATABASE_URL=postgres://me@localhost/app pytest

On a Redis of the user the tests touch only keys under the unique prefix of each test; on a
database server of the user they create and drop ``test_<name>`` as Django's tests always do.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from tests.helpers.postgres import Postgres
from tests.helpers.valkey import Valkey

DATABASES = ("sqlite", "postgres")


class Services:
    """What was started for this run, and by which process."""

    def __init__(self) -> None:
        self.owns_redis = False
        self._owner = os.getpid()
        self._valkey: Valkey | None = None
        self._postgres: Postgres | None = None
        self._files: Path | None = None

    def start(self) -> None:
        """Start what the environment does not name yet, and name it there."""
        # Registered first: what was started is ended too when a later start fails.
        atexit.register(self.close)
        if not os.environ.get("REDIS_URL"):
            self._valkey = Valkey().start()
            self.owns_redis = True
            os.environ["REDIS_URL"] = self._valkey.url
        if not os.environ.get("DATABASE_URL"):
            os.environ["DATABASE_URL"] = self._start_database()

    def close(self) -> None:
        """End what was started; in a forked child nothing happens."""
        if os.getpid() != self._owner:
            return
        if self._valkey is not None:
            self._valkey.close()
            self._valkey = None
        if self._postgres is not None:
            self._postgres.close()
            self._postgres = None
        if self._files is not None:
            shutil.rmtree(self._files, ignore_errors=True)
            self._files = None

    def _start_database(self) -> str:
        wanted = os.environ.get("KUMIKO_TEST_DATABASE") or "sqlite"
        if wanted not in DATABASES:
            raise SystemExit(
                f"KUMIKO_TEST_DATABASE is {wanted!r}; known are {', '.join(DATABASES)}. "
                "For a running server set DATABASE_URL instead."
            )
        if wanted == "postgres":
            self._postgres = Postgres().start()
            return self._postgres.url
        self._files = Path(tempfile.mkdtemp(prefix="kumiko-sqlite-"))
        return f"sqlite:///{self._files / 'kumiko.sqlite3'}"


_services: Services | None = None


def start_for_run() -> Services:
    """Start the run's services once in this process; later calls return them."""
    global _services
    if _services is None:
        _services = Services()
        _services.start()
    return _services
