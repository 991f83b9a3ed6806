"""What a job takes along in its data from one fetch to the next (design 5).

A deferral goes on in the same run: the job's data says which. What holds for a single fetch only is
taken out again when the job is settled otherwise, so that the next run is a new one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from kumiko_django.broker.delivery import Delivery

DEFER_COUNT: Final = "_deferCount"
"""How often the job has been deferred, over all attempts; it never falls (B197)."""
RUN_START: Final = "_runStart"
"""The start number of the run that was deferred."""
RUN: Final = "_run"
"""The rest of what is needed to go on with it."""
UNKNOWN_SINCE: Final = "_unknownSince"
"""Since when no worker has known the job's name, in milliseconds since 1970."""
_PASSING: Final = (RUN_START, RUN, UNKNOWN_SINCE)


@dataclass(frozen=True, slots=True)
class Carried:
    """A run that was deferred.

    Attributes:
        run_id: Its id.
        start: Its start number.
        defers: How often it has been deferred.
        lines: How many lines its log has.
    """

    run_id: UUID
    start: int
    defers: int
    lines: int


def carried(delivery: Delivery) -> Carried | None:
    """The run that goes on with this delivery; None if it is a new one.

    A run that was lost, has failed or was given back does not go on: the queue has counted another
    loss or attempt since, or the data says nothing of it any more.
    """
    if not isinstance(delivery.data, dict):
        return None
    raw, start = delivery.data.get(RUN), read_count(delivery.data, RUN_START)
    if not isinstance(raw, dict) or not 0 < start < delivery.start:
        return None
    if raw.get("attempt") != delivery.attempt or raw.get("losses") != delivery.losses:
        return None
    try:
        run_id = UUID(str(raw.get("id")))
    except ValueError:
        return None
    return Carried(run_id, start, read_count(raw, "defers"), read_count(raw, "lines"))


def read_count(data: Any, key: str) -> int:
    """A counter in job data; 0 where there is none, or nonsense (B203: each under its own key)."""
    value = data.get(key) if isinstance(data, dict) else None
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
    return int(value) if is_count else 0  # type: ignore[arg-type]


def deferred_data(delivery: Delivery, run: Carried, correlation_id: str) -> str:
    """The data of a job whose run is deferred: all that was there, and the run (B200, B240).

    Args:
        delivery: The job.
        run: The run as it stands after this deferral.
        correlation_id: Of the run; a chain that it began goes on with it.
    """
    data = {"_correlationId": correlation_id, **_lasting(delivery.data)}
    data[DEFER_COUNT] = read_count(data, DEFER_COUNT) + 1
    data[RUN_START] = run.start
    data[RUN] = {
        "id": str(run.run_id),
        "attempt": delivery.attempt,
        "losses": delivery.losses,
        "defers": run.defers,
        "lines": run.lines,
    }
    return _encode(data)


def unknown_data(delivery: Delivery, since_ms: int) -> str:
    """The data of a job that is put back because nobody knows its name."""
    return _encode({**delivery.data, UNKNOWN_SINCE: since_ms})


def settled_data(delivery: Delivery) -> str | None:
    """The data of a job that is to run anew; None if it can stay as it is."""
    data = delivery.data
    if not isinstance(data, dict) or not any(key in data for key in _PASSING):
        return None
    return _encode(_lasting(data))


def _lasting(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key not in _PASSING}


def _encode(data: dict[str, Any]) -> str:
    # What another producer has stored goes back as it came, numbers that JSON has not included.
    return json.dumps(data, separators=(",", ":"))
