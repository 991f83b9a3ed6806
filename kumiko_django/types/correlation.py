"""Ids that tell which request or chain of work a line of a log belongs to (P92)."""

from __future__ import annotations

import re
from typing import Final

MAX_CORRELATION_LENGTH: Final = 128
_OF_A_HEADER = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")


def clean_correlation_id(value: object) -> str | None:
    """A correlation id that may appear in logs, or None (P92: no log injection)."""
    if not isinstance(value, str) or not value or len(value) > MAX_CORRELATION_LENGTH:
        return None
    return value if value.isprintable() else None


def id_of_header(value: str | None) -> str | None:
    """An id that a client has sent and that is sent back to it, or None.

    Strangers may send anything, and it ends up in logs, pages and headers: letters, digits and
    ``._:/+=@-`` only, which UUIDs, ULIDs and the ids of proxies keep to.
    """
    return value if value and _OF_A_HEADER.fullmatch(value) else None
