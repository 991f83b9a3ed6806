"""Deleting old records of uses, in short transactions."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from typing import Final

from django.db import router

from kumiko_django.audit.models import EscapeHatchUse
from kumiko_django.conf import get_settings
from kumiko_django.types.ids import first_id_at

INTERVAL: Final = 3600.0
"""Seconds between two looks."""
BATCH_SIZE: Final = 1_000


def prune(now: dt.datetime, go_on: Callable[[float], bool]) -> int:
    """Delete the records that are older than ``AUDIT_AGE``, counted from the first use.

    Args:
        now: What time it is.
        go_on: Asked between two batches, with the seconds that the last one took.

    Returns:
        How many were deleted.
    """
    age = get_settings().audit_age
    if age is None:
        return 0
    alias = router.db_for_write(EscapeHatchUse)
    uses = EscapeHatchUse._default_manager.using(alias)
    old = uses.filter(id__lt=first_id_at(now - dt.timedelta(seconds=age))).order_by("id")
    deleted = 0
    while True:
        began = time.monotonic()
        ids = list(old.values_list("id", flat=True)[:BATCH_SIZE])
        if not ids:
            return deleted
        deleted += uses.filter(id__in=ids).delete()[0]
        if not go_on(time.monotonic() - began):
            return deleted
