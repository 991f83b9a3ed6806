"""The same payload and the same job options on every side."""

from __future__ import annotations

from typing import Any

RETENTION: dict[str, Any] = {
    "attempts": 1,
    "removeOnComplete": {"age": 24 * 60 * 60},
    "removeOnFail": {"age": 7 * 24 * 60 * 60},
}
"""What kumiko_django puts on a job by default, for the raw queue."""


def payload(number: int) -> dict[str, Any]:
    """The payload of job ``number``: about 60 bytes of JSON."""
    return {"number": number, "name": f"customer {number % 97}", "amount": number % 1000}
