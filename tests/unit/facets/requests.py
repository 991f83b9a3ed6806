"""What the factories of the settings are given, for tests of single facets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kumiko_django.facets.request import SYSTEM_USER_ID, FacetRequest


def no_other(name: str) -> Any:
    raise AssertionError(f"ctx.{name} is asked for")


def request_of(tenant_id: str, other: Callable[[str], Any] = no_other) -> FacetRequest:
    return FacetRequest(tenant_id, "testapp:job:record", SYSTEM_USER_ID, "7", "chain-1", other)
