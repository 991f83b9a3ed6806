"""Whether an error of the database says that it is away, or that it refuses what we write."""

from __future__ import annotations

from typing import Final

from django.db import InterfaceError, InternalError, OperationalError, ProgrammingError

_TOO_MUCH: Final = "54"
"""PostgreSQL's class of errors for what exceeds its limits. They count as operational, but no
waiting will help."""
_NOT_READY: Final = frozenset({"3F000", "42501", "42703", "42P01"})
"""PostgreSQL's codes for a schema, table or column that is missing and for rights that are: the
database is being migrated or restored. No single row is to blame. (SQLite calls it operational.)"""


def is_away(error: BaseException) -> bool:
    """Whether trying again later is right.

    So it is where the database is gone, refuses, is locked, read-only after a failover or not
    migrated yet.
    """
    state = getattr(error.__cause__, "sqlstate", None)
    if isinstance(error, ProgrammingError):
        return state in _NOT_READY
    if not isinstance(error, OperationalError | InterfaceError | InternalError):
        return False
    return not (isinstance(state, str) and state.startswith(_TOO_MUCH))
