"""A database for the demo that nobody else uses: a file, or a schema of its own on a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import environ

from example_project.demo.processes import DemoFailed

_POSTGRES = ("postgres", "postgresql", "psql", "pgsql", "postgis")


class Database:
    """Where the data lies; ``url`` is what Django is told.

    On a PostgreSQL server everything goes into one schema, named through the connection's
    ``search_path``, so the tables that are there already are neither seen nor touched.
    """

    def __init__(self, wanted: str | None, fallback: Path, schema: str, *, keep: bool) -> None:
        self._wanted = wanted or f"sqlite:///{fallback}"
        self._schema = schema
        self._keep = keep
        self._is_postgres = urlsplit(self._wanted).scheme in _POSTGRES
        self.url = self._with_search_path() if self._is_postgres else self._wanted

    def create(self) -> None:
        """Make the place.

        Raises:
            DemoFailed: It cannot be made, or belongs to somebody.
        """
        if self._is_postgres:
            self._execute(f'CREATE SCHEMA IF NOT EXISTS "{self._schema}"')
        elif (path := self._file()) is None:
            raise DemoFailed(
                "DATABASE_URL must name a PostgreSQL (postgres://user:password@host/name) or a "
                "SQLite file (sqlite:////path/to/file). Unset, the demo uses a file of its own."
            )
        elif path.exists() and not self._keep:
            raise DemoFailed(
                f"DATABASE_URL names the file {path}, which is there already. The demo wants an "
                "empty database: name a new file, or unset DATABASE_URL."
            )

    def describe(self) -> str:
        """What and where, in a few words."""
        if self._is_postgres:
            parts = urlsplit(self._wanted)
            return f"PostgreSQL at {parts.hostname or 'a local socket'}, schema {self._schema}"
        return f"SQLite, {self._file()}"

    def remove(self) -> None:
        """Remove what :meth:`create` made, unless it is to be kept."""
        if self._keep:
            return
        if self._is_postgres:
            self._execute(f'DROP SCHEMA IF EXISTS "{self._schema}" CASCADE')
        elif path := self._file():
            for suffix in ("", "-wal", "-shm", "-journal"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)

    def _config(self) -> dict[str, Any]:
        config: dict[str, Any] = environ.Env.db_url_config(self._wanted)
        return config

    def _file(self) -> Path | None:
        if urlsplit(self._wanted).scheme not in ("sqlite", "spatialite"):
            return None
        name = self._config()["NAME"]
        return None if name == ":memory:" else Path(name)

    def _with_search_path(self) -> str:
        parts = urlsplit(self._wanted)
        query = dict(parse_qsl(parts.query))
        given = query.get("options", "")
        query["options"] = f"{given} -c search_path={self._schema}".strip()
        return urlunsplit(parts._replace(query=urlencode(query, quote_via=quote)))

    def _execute(self, statement: str) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise DemoFailed(
                "DATABASE_URL names a PostgreSQL, and its driver is not installed: "
                "pip install 'psycopg[binary]'"
            ) from error
        config = self._config()
        names = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST"}
        arguments = {name: config.get(key) for name, key in {**names, "port": "PORT"}.items()}
        try:
            with psycopg.connect(
                **{name: value for name, value in arguments.items() if value},
                **config.get("OPTIONS", {}),
                autocommit=True,
            ) as connection:
                connection.execute(statement.encode())
        except psycopg.Error as error:
            raise DemoFailed(
                f"The database that DATABASE_URL names cannot be used: {error}"
            ) from error
