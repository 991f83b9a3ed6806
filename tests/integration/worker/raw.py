"""Jobs of the extra app, added as another BullMQ client does: this process does not have them."""

from __future__ import annotations

from typing import Any

from pytest_django import Settings

from tests.integration.worker.host_thread import add_raw


def add_extra(settings: Settings, *jobs: tuple[str, dict[str, Any]], **options: Any) -> list[str]:
    """``add_extra(settings, ("stubborn", {"seconds": 9}))``; they are for the tenant acme."""
    kumiko = settings.KUMIKO
    return add_raw(
        kumiko["REDIS_URL"],
        f"{kumiko['QUEUE_PREFIX']}-worker",
        [
            (f"extra:job:{name}", {"_tenantId": "acme", **payload}, options)
            for name, payload in jobs
        ],
    )
