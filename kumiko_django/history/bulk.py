"""Whole rows of ended and running runs, many in one statement.

PostgreSQL gets all rows as one JSON text, which it takes apart itself: a statement with thirty
parameters a row costs Python several times what the rest of a run costs. The other databases get
what Django makes for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from django.db import connections, models
from django.db.backends.base.base import BaseDatabaseWrapper

from kumiko_django.history.models import JobRun
from kumiko_django.history.record import END_FIELDS, START_FIELDS

CHUNK: Final = 500
"""Rows of one statement."""

_EMPTY: Final = {
    "PositiveIntegerField": "0",
    "CharField": "''",
    "TextField": "''",
    "BooleanField": "false",
}


def takes_records(alias: str) -> bool:
    """Whether :func:`upsert` knows the language of a database."""
    return connections[alias].vendor == "postgresql"


def upsert(alias: str, rows: Sequence[str]) -> int:
    """Insert rows, or where one is there as running, write its end.

    Args:
        alias: A database for which :func:`takes_records`.
        rows: Rows as :func:`kumiko_django.history.record.encode` writes them.

    Returns:
        How many rows were inserted or ended; the others had an end already.

    Raises:
        DatabaseError: None was.
    """
    connection = connections[alias]
    statement, count = _statement(alias), 0
    with connection.cursor() as cursor:
        for first in range(0, len(rows), CHUNK):
            cursor.execute(statement, ["[" + ",".join(rows[first : first + CHUNK]) + "]"])
            count += cursor.rowcount
    return count


@lru_cache(maxsize=8)
def _statement(alias: str) -> str:
    connection = connections[alias]
    fields: list[models.Field[Any, Any]] = list(JobRun._meta.concrete_fields)
    quote = connection.ops.quote_name
    table = quote(JobRun._meta.db_table)
    named = [(field, quote(str(field.column))) for field in fields]
    columns = ", ".join(column for _, column in named)
    values = ", ".join(_value(field, column) for field, column in named)
    types = ", ".join(f"{column} {_type(field, connection)}" for field, column in named)
    ends = ", ".join(f"{quote(name)} = EXCLUDED.{quote(name)}" for name in END_FIELDS)
    is_running = f"{table}.{quote('status')} = 'running'"
    return (
        f"INSERT INTO {table} ({columns}) SELECT {values} "  # noqa: S608  (names of ours)
        f"FROM json_to_recordset(%s::json) AS x({types}) "
        f"ON CONFLICT ({quote('id')}) DO UPDATE SET {ends} WHERE {is_running}"
    )


def _type(field: models.Field[Any, Any], connection: BaseDatabaseWrapper) -> str:
    # A value of a JSON column travels as text within the row.
    return "text" if isinstance(field, models.JSONField) else str(field.db_type(connection))


def _value(field: models.Field[Any, Any], column: str) -> str:
    if isinstance(field, models.JSONField):
        return f"x.{column}::jsonb"
    empty = _EMPTY.get(field.get_internal_type())
    is_given = field.null or field.name in START_FIELDS
    return f"x.{column}" if is_given or empty is None else f"COALESCE(x.{column}, {empty})"
