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
    GATE_FAILED = 6
    """A boot gate failed: nothing was queued or consumed."""
    RETIRED = 7
    """A handler did not end after its timeout; the process has to be started anew."""
    FORCED = 130
    """A second signal: left at once; the queue hands unfinished jobs out again."""


class DispatchCode(IntEnum):
    """Exit codes of ``dispatchjob``."""

    OK = 0
    """Queued; with ``--wait``: completed."""
    FAILED = 1
    """With ``--wait``: it ended otherwise, or was removed."""
    WRONG_COMMAND = 2
    """The command line is wrong."""
    REFUSED = 3
    """An unknown job, a payload or tenant that does not fit, or wrong settings."""
    BROKER_UNAVAILABLE = 4
    """Redis was not reached."""
    DATABASE_UNAVAILABLE = 5
    """With ``--wait``: the history's database was not reached."""
    NOT_ENDED = 7
    """With ``--wait``: it had not ended within ``--timeout``; it goes on."""
    NOT_ACCEPTED = 8
    """The job's own rules let no further one in; nothing was queued."""
    INTERRUPTED = 130
    """With ``--wait``: Ctrl-C; the job goes on."""
