"""Database connections of threads that run one job after the other (P34, P106, user-needs 19)."""

from __future__ import annotations

import contextlib
import logging
import select
import sqlite3
from typing import Any, Final

from django.db import connections, reset_queries

logger = logging.getLogger("kumiko_django.run")

FRESH_SECONDS: Final = 1.0
"""A connection that has worked so shortly ago is not asked again whether it works."""


def prepare_connections(idle: float) -> None:
    """Make this thread's connections fit for a run after it had nothing to do. Does not raise.

    Args:
        idle: For how many seconds. After a short while nothing can have become of them.
    """
    fresh = idle < FRESH_SECONDS
    if not fresh:
        clean_connections()
    connection: Any  # its stubs do not know of health checks
    for connection in connections.all(initialized_only=True):
        # Under CONN_MAX_AGE the server, or a firewall, may have cut it meanwhile. Django then asks
        # before a run's first statement; no job should fail because it was the first one after a
        # pause (user-needs 19).
        connection.health_check_enabled = True
        connection.health_check_done = fresh and not _has_word(connection)


def _has_word(connection: Any) -> bool:
    """Whether the server has said something unasked: that it ends the session, most likely."""
    try:
        ready, _, _ = select.select([connection.connection.fileno()], [], [], 0)
    except (AttributeError, OSError, ValueError):
        # Not connected, no socket (SQLite), a driver that does not show it, or a closed one.
        return not isinstance(connection.connection, sqlite3.Connection)
    return bool(ready)


def clean_connections() -> None:
    """Let nothing of a run reach the next one in this thread. Does not raise.

    Broken and outdated connections are closed, as Django does around a request. One that a handler
    left inside a transaction is thrown away: the transaction is rolled back.
    """
    reset_queries()  # with DEBUG on, Django would remember every statement for ever
    connection: Any
    for connection in connections.all(initialized_only=True):
        try:
            if connection.in_atomic_block:
                _throw_away(connection)
            else:
                connection.close_if_unusable_or_obsolete()
        except Exception:
            # A thread that ended here would leave its run waiting for ever.
            logger.exception("The connection %r could not be cleaned", connection.alias)
            _throw_away(connection)


def _throw_away(connection: Any) -> None:
    # close() would only mark it, since a transaction is open; the driver's own close rolls back,
    # and the backend's knows about pools.
    with contextlib.suppress(Exception):
        connection._close()
    with contextlib.suppress(AttributeError):
        del connections[connection.alias]
