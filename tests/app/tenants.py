"""The tenants of the test project."""

from __future__ import annotations

TENANT_IDS = ("acme", "globex", "initech")


def active_tenants() -> list[str]:
    """Give the active tenant ids, as ``KUMIKO["TENANTS"]`` wants it."""
    return list(TENANT_IDS)
