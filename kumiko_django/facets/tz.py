"""``ctx.tz``: the time zone of the tenant, which is also the current one while its run lasts."""

from __future__ import annotations

import datetime as dt
import logging
from typing import Any
from zoneinfo import ZoneInfo

from django.utils import timezone

from kumiko_django.conf import get_settings
from kumiko_django.types.dotted import load_callable
from kumiko_django.types.ids import SYSTEM

logger = logging.getLogger("kumiko_django.facets")


def has_own(tenant_id: str) -> bool:
    """Whether a tenant may have a time zone of its own; SYSTEM has Django's ``TIME_ZONE``."""
    return tenant_id != SYSTEM and get_settings().time_zone is not None


def zone_of(tenant_id: str) -> dt.tzinfo:
    """The time zone of a tenant, as ``KUMIKO["TIME_ZONE"]`` says; else Django's.

    What goes wrong is logged, and Django's is taken: no run fails for it (B141, B243).
    """
    if has_own(tenant_id):
        try:
            ask = load_callable("TIME_ZONE", get_settings().time_zone, "of the tenant id")
            given = ask(tenant_id)
            if given is not None:
                return _zone(given)
        except Exception:
            logger.exception(
                'KUMIKO["TIME_ZONE"] gives no time zone for tenant %s; %s is used',
                tenant_id,
                timezone.get_default_timezone_name(),
            )
    return timezone.get_default_timezone()


def _zone(given: Any) -> dt.tzinfo:
    if isinstance(given, dt.tzinfo):
        return given
    if isinstance(given, str):
        return ZoneInfo(given)
    raise TypeError(f"a name like 'Europe/Berlin' or a tzinfo is needed, not {given!r}")
