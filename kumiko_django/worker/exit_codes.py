"""How ``runjobs`` ends, by number."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of ``runjobs``."""

    OK = 0
    """Stopped as asked, or drained, or nothing wrong with ``--check``."""
    FAULT = 1
    """Something broke: a consumer ended by itself, or a fault of ours. (A wrong command: 2.)"""
    CONFIGURATION = 3
    """The settings, a job definition or the database schema must be changed first."""
    BROKER_UNAVAILABLE = 4
    """Redis was not reached in time, or refuses us."""
    DATABASE_UNAVAILABLE = 5
    """The database of the history was not reached."""
    RETIRED = 6
    """A handler did not end after its timeout; the process has to be started anew."""
    FORCED = 130
    """A second signal: left at once; the queue hands unfinished jobs out again."""
