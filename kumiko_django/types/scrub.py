"""Taking secrets out of error texts before they reach history, logs or the queue (P38)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

MASK: Final = "***"

_URL_PASSWORD = re.compile(r"(?P<head>\b[a-z][a-z0-9+.-]*://[^\s:/@]*):[^\s@]+@", re.IGNORECASE)
_NAMED_SECRET = re.compile(
    r"""(?P<name>\b[\w-]*(?:password|passwd|pwd|secret|token|api[_-]?key|credential)s?\b["']?)
        (?P<separator>\s*(?:=>|=|:)\s*)
        (?P<quote>["']?)[^\s"',;)}\]&]+(?P=quote)""",
    re.IGNORECASE | re.VERBOSE,
)
_AUTHORIZATION = re.compile(r"\b(?P<scheme>Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE)


def scrub(text: str, secrets: Iterable[str] = ()) -> str:
    """``text`` without passwords and tokens.

    Args:
        text: An error message or traceback.
        secrets: Exact values that must not appear, such as the Redis password.
    """
    for secret in secrets:
        if len(secret) >= 4:
            text = text.replace(secret, MASK)
    text = _URL_PASSWORD.sub(rf"\g<head>:{MASK}@", text)
    text = _NAMED_SECRET.sub(rf"\g<name>\g<separator>{MASK}", text)
    return _AUTHORIZATION.sub(rf"\g<scheme> {MASK}", text)


def cut_end(text: str, limit: int) -> str:
    """The first ``limit`` characters, with a note of what was cut: for messages."""
    if len(text) <= limit:
        return text
    note = f" [{len(text) - limit} characters cut]"
    return text[: max(limit - len(note), 0)] + note


def cut_start(text: str, limit: int) -> str:
    """The last ``limit`` characters, with a note of what was cut: for tracebacks."""
    if len(text) <= limit:
        return text
    note = f"[{len(text) - limit} characters cut]\n"
    return note + text[len(text) - max(limit - len(note), 0) :]
