"""The tenants of the test project."""

from __future__ import annotations

TENANT_IDS = ("acme", "globex", "initech")


def active_tenants() -> list[str]:
    """Give the active tenant ids, as ``KUMIKO["TENANTS"]`` wants it."""
    return list(TENANT_IDS)


def many_tenants() -> list[str]:
    """Give the ids of ten thousand tenants."""
    return [f"tenant-{number:05}" for number in range(10_000)]


def some_tenants() -> list[str]:
    """Give the ids of three hundred tenants."""
    return many_tenants()[:300]
