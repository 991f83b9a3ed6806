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
# All lanes in one step: else a job would be missed that goes from one to the other meanwhile.
_COUNT: Final = """
local lists, names, pending = 3, #KEYS / (#ARGV - 1), 0
for lane = 1, #ARGV - 1 do
  local keys = {unpack(KEYS, (lane - 1) * names + 1, lane * names)}
  for i = 1, lists do
    pending = pending + redis.call("LLEN", keys[i])
  end
  for i = lists + 1, names - 1 do
    pending = pending + redis.call("ZCARD", keys[i])
  end
  local delayed, schedulers = keys[names - 1], keys[names]
  local entries = redis.call("ZRANGE", schedulers, 0, -1, "WITHSCORES")
  for i = 1, #entries, 2 do
    local id = "repeat:" .. entries[i] .. ":" .. string.format("%.0f", tonumber(entries[i + 1]))
    if tonumber(entries[i + 1]) > tonumber(ARGV[1]) and redis.call("ZSCORE", delayed, id) then
      local begun = redis.call("HMGET", ARGV[1 + lane] .. id, "ats", "atm")
      if (tonumber(begun[1] or 0) or 0) == 0 and (tonumber(begun[2] or 0) or 0) == 0 then
        pending = pending - 1
      end
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
    with sync_client() as client:
        answer: Any = client.eval(*_call())
    return int(answer)


async def apending_count() -> int:
    """How many jobs have not come to an end, from async code; see :func:`pending_count`.

    Raises:
        BrokerUnavailable: Redis does not answer in time.
    """
    async with async_client() as client:
        answer: Any = await cast("Any", client.eval(*_call()))
    return int(answer)


def _call() -> tuple[Any, ...]:
    lanes = [queue_scripts(queue_name(lane)).keys for lane in LANES]
    names = [keys[state] for keys in lanes for state in (*_STATES, "repeat")]
    prefixes = [keys[""] for keys in lanes]
    return (_COUNT, len(names), *names, time.time_ns() // 1_000_000, *prefixes)
