"""The servers of a run: a PostgreSQL that really waits for the disk, a Valkey, an SQLite file."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.helpers.postgres import Postgres
from tests.helpers.valkey import Valkey

DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
CONFIGURATION = """
max_connections = 200
shared_buffers = 256MB
max_wal_size = 2GB
log_min_messages = fatal
""" + "".join(f"{name} = {value}\n" for name, value in DURABLE.items())


@contextmanager
def services() -> Iterator[Valkey]:
    """Start the servers, put their addresses into the environment, and end them."""
    postgres, valkey = Postgres(CONFIGURATION), Valkey()
    files = Path(tempfile.mkdtemp(prefix="kumiko-bench-"))
    try:
        postgres.start()
        valkey.start()
        os.environ["BENCH_POSTGRES"] = postgres.url
        os.environ["BENCH_SQLITE"] = f"sqlite:///{files / 'bench.sqlite3'}"
        os.environ["REDIS_URL"] = valkey.url
        os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.project.settings"
        prepare()
        yield valkey
    finally:
        valkey.close()
        postgres.close()
        shutil.rmtree(files, ignore_errors=True)


def prepare() -> None:
    """Set Django up in this process and make the tables in both databases.

    Raises:
        RuntimeError: A commit of PostgreSQL would not wait for the disk.
    """
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connections

    for alias in ("postgres", "sqlite"):
        call_command("migrate", database=alias, verbosity=0)
    with connections["postgres"].cursor() as cursor:
        for name, wanted in DURABLE.items():
            cursor.execute(f"SHOW {name}")
            (found,) = cursor.fetchone()
            if found != wanted:
                raise RuntimeError(f"PostgreSQL has {name} = {found}, wanted {wanted}")
