"""How much work is pending: what waits, runs, or will run by itself (B218, P94)."""

from __future__ import annotations

import time
from typing import Any, Final, cast

from django.utils.asyncio import async_unsafe

from kumiko_django.broker.bullmq import queue_scripts
from kumiko_django.broker.connection import async_client, sync_client
from kumiko_django.broker.keys import queue_name
from kumiko_django.definitions.options import LANES

_STATES: Final = ("wait", "paused", "active", "prioritized", "waiting-children", "delayed")

# The next tick of a scheduler is a delayed job that nobody asked for yet. Its id follows from the
# scheduler's own entry, so only as many jobs are looked at as there are schedulers, and no payload
# (P94). One that has begun before is in backoff, say, and counts.
_COUNT: Final = """
local lists, pending = 3, 0
for i = 1, lists do
  pending = pending + redis.call("LLEN", KEYS[i])
end
for i = lists + 1, #KEYS - 1 do
  pending = pending + redis.call("ZCARD", KEYS[i])
end
local delayed, schedulers = KEYS[#KEYS - 1], KEYS[#KEYS]
local entries = redis.call("ZRANGE", schedulers, 0, -1, "WITHSCORES")
for i = 1, #entries, 2 do
  local id = "repeat:" .. entries[i] .. ":" .. string.format("%.0f", tonumber(entries[i + 1]))
  if tonumber(entries[i + 1]) > tonumber(ARGV[2]) and redis.call("ZSCORE", delayed, id) then
    local begun = redis.call("HMGET", ARGV[1] .. id, "ats", "atm")
    if (tonumber(begun[1] or 0) or 0) == 0 and (tonumber(begun[2] or 0) or 0) == 0 then
      pending = pending - 1
    end
  end
end
return pending
"""


@async_unsafe("pending_count() would block the event loop - await apending_count() instead.")
def pending_count() -> int:
    """How many jobs of all lanes have not come to an end.

    Those that wait (paused and parked ones too), run, or are delayed: planned for later, deferred,
    in backoff. The next occurrence of a schedule does not count before it is due.

    Raises:
        BrokerUnavailable: Redis does not answer in time.
        SynchronousOnlyOperation: Called from async code; use :func:`apending_count`.
    """
    calls = _calls()
    with sync_client() as client:
        answers: list[Any] = [client.eval(*call) for call in calls]
    return sum(map(int, answers))


async def apending_count() -> int:
    """How many jobs have not come to an end, from async code; see :func:`pending_count`.

    Raises:
        BrokerUnavailable: Redis does not answer in time.
    """
    calls = _calls()
    answers: list[Any] = []
    async with async_client() as client:
        for call in calls:
            answers.append(await cast("Any", client.eval(*call)))
    return sum(map(int, answers))


def _calls() -> list[tuple[Any, ...]]:
    calls: list[tuple[Any, ...]] = []
    for lane in LANES:
        keys = queue_scripts(queue_name(lane)).keys
        names = [keys[state] for state in (*_STATES, "repeat")]
        calls.append((_COUNT, len(names), *names, keys[""], time.time_ns() // 1_000_000))
    return calls
