"""Handing over what nobody has handed over: slots whose jobs were removed, or taken elsewhere."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable
from typing import Final

from kumiko_django.broker import door
from kumiko_django.conf import get_settings

logger = logging.getLogger("kumiko_django.admission")

KEYS_AT_A_TIME: Final = 100
PLACES_AT_A_TIME: Final = 20
MOST_STEPS: Final = 20
"""Of one pass: what is left has its turn in the next one, those that wait longest first."""


def interval() -> float:
    """Seconds between two passes: half the length of a lock, 15 s by default."""
    return get_settings().lock_seconds / 2


def sweep(now: dt.datetime, go_on: Callable[[], bool]) -> int:
    """Look after all keys with parked work.

    Args:
        now: The time.
        go_on: Asked between two steps.

    Returns:
        How many slots were handed over.

    Raises:
        BrokerUnavailable: Redis does not answer.
    """
    lock_ms = round(get_settings().lock_seconds * 1000)
    granted = 0
    for _ in range(MOST_STEPS):
        if not go_on():
            break
        looked_at, handed_over = door.sweep(lock_ms // 4, lock_ms, KEYS_AT_A_TIME, PLACES_AT_A_TIME)
        granted += handed_over
        if looked_at < KEYS_AT_A_TIME:
            break
    if granted:
        logger.info("handed %d slots over that were held by jobs which are gone", granted)
    return granted
