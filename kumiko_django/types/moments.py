"""Points in time as the queue has them."""

from __future__ import annotations

import datetime as dt

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_YEAR_9000_MS = 221_845_392_000_000


def moment(milliseconds: int) -> dt.datetime:
    """A time of the queue's; another producer's nonsense must not break the record."""
    bounded = min(max(milliseconds, 0), _YEAR_9000_MS)
    return _EPOCH + dt.timedelta(milliseconds=bounded)
