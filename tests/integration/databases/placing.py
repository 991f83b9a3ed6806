"""Where the tests have their tenants: globex in a database of its own."""

from __future__ import annotations

EU, ARCHIVE = "eu", "archive"


def database_of(tenant_id: str) -> str:
    """Give the alias of a tenant's database, as ``KUMIKO["TENANT_DATABASE"]`` wants it."""
    return EU if tenant_id == "globex" else "default"


database_of.databases = [EU]  # type: ignore[attr-defined]


def nowhere(tenant_id: str) -> str:
    """Give an alias that is not there."""
    return "elsewhere"


def undeclared(tenant_id: str) -> str:
    """Give one that is not among its databases."""
    return ARCHIVE


undeclared.databases = [EU]  # type: ignore[attr-defined]
