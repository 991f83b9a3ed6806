"""Whether an error of the database says that it is away, or that it refuses what we write."""

from __future__ import annotations

from django.db import InterfaceError, InternalError, OperationalError

_TOO_MUCH = "54"
"""PostgreSQL's class of errors for what exceeds its limits. They count as operational, but no
waiting will help."""


def is_away(error: BaseException) -> bool:
    """Whether trying again later is right: gone, refused, locked, read-only after a failover."""
    if not isinstance(error, OperationalError | InterfaceError | InternalError):
        return False
    state = getattr(error.__cause__, "sqlstate", None)
    return not (isinstance(state, str) and state.startswith(_TOO_MUCH))
