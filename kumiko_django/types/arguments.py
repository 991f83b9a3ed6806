"""What callers may give to ``dispatch`` and its siblings, spelled once for all who pass it on."""

from __future__ import annotations

import datetime as dt
from typing import Final, TypeAlias
from uuid import UUID


class Ambient:
    """Type of the marker for 'the tenant of the scope that I am in'."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "AMBIENT"


AMBIENT: Final = Ambient()

TenantArgument: TypeAlias = str | int | UUID | Ambient | None
"""What callers may give as ``tenant_id=``; None means the same as leaving it out."""

Delay: TypeAlias = dt.timedelta | float | int | None
"""Seconds or a timedelta until a job is due."""
