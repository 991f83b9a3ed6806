"""What comes from other clients and from the package, made harmless."""

from __future__ import annotations

import logging
from dataclasses import replace

from kumiko_django.broker.address import RedisAddress
from kumiko_django.broker.settling import LARGEST_NUMBER

logger = logging.getLogger("kumiko_django.broker")


def digits_of(text: object) -> int:
    """A number out of a broken record; 0 where there is none."""
    return int(text) if isinstance(text, str) and text.isdecimal() and len(text) < 16 else 0


def whole_of(value: object) -> int:
    """A number that another producer may have stored, within what a column holds.

    Digits count as their number, as they do for BullMQ in JavaScript.
    """
    if isinstance(value, str):
        value = digits_of(value)
    if not isinstance(value, int | float) or value != value:
        return 0
    return int(min(max(value, 0), LARGEST_NUMBER))


def log_package_error(error: object, *_: object) -> None:
    """A listener: without one the package drops its errors; it must not raise (1.18)."""
    logger.warning("bullmq: %s", error)


def lenient(address: RedisAddress) -> RedisAddress:
    """The address for a client that meets text of others: bytes that are no UTF-8, lone surrogates.

    An error while decoding would strike again at every fetch of that job, and one while encoding
    would run a failed job again because its error cannot be told.
    """
    return replace(address, arguments={**address.arguments, "encoding_errors": "replace"})
