"""Identifiers: time-ordered UUIDs for jobs and runs, and the tenant of work without a tenant."""

from __future__ import annotations

import datetime as dt
import os
import time
import uuid
from typing import Final

SYSTEM: Final = "00000000-0000-4000-8000-000000000000"
"""The tenant of work that belongs to no tenant; also its spelling on the wire and in rows."""
SYSTEM_USER_ID: Final = "00000000-0000-0000-0000-000000000000"
"""Who acts in a job, whoever has caused it (B238)."""


def uuid7() -> uuid.UUID:
    """A UUID version 7 (RFC 9562): the time in milliseconds and 4096ths of one, then random bits.

    Its text sorts by time, so that history rows insert at the end of their index, and it is never
    an integer, which bullmq would take for one of its own ids (bullmq-python 1.15).
    """
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    value = (milliseconds & (2**48 - 1)) << 80 | 0x7 << 76 | (rest << 12) // 1_000_000 << 64
    value |= 0x2 << 62 | int.from_bytes(os.urandom(8), "big") >> 2
    return uuid.UUID(int=value)


def first_id_at(moment: dt.datetime) -> uuid.UUID:
    """The smallest UUID of version 7 that can be made at ``moment`` (an aware one)."""
    milliseconds = int(moment.timestamp() * 1_000)
    return uuid.UUID(int=milliseconds << 80 | 0x7 << 76 | 0x2 << 62)


def new_job_id() -> str:
    """A new queue job id, known before Redis is asked so that a repeated add is harmless."""
    return str(uuid7())
