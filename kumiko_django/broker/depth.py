"""How full the queues of some lanes are, and how long their oldest job waits: one round trip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kumiko_django.broker import door
from kumiko_django.broker.bullmq import queue_scripts
from kumiko_django.broker.connection import sync_client
from kumiko_django.broker.keys import queue_name
from kumiko_django.definitions.options import Lane

LISTS: Final = {"waiting": "wait", "paused": "paused", "active": "active"}
SETS: Final = {
    "prioritized": "prioritized",
    "delayed": "delayed",
    "waiting-children": "waiting-children",
    "completed": "completed",
    "failed": "failed",
}
PARKED: Final = "parked"
STATES: Final = (*LISTS, *SETS, PARKED)
"""All states of a job; those that are parked lie among the delayed ones, and count as parked."""

_LOOKED_AT: Final = 50
_KEYS_LOOKED_AT: Final = 500

# A job waits since it was due (by its dispatch's delay), or since its last run. Those that come
# next are looked at, not all: the oldest is among them, but for hundreds of urgent ones before it.
_OLDEST: Final = """
local call = redis.call
local time = call("TIME")
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local function since(id)
  local found = call("HMGET", ARGV[1] .. id, "timestamp", "processedOn", "opts")
  if not found[1] then return nil end
  local due = tonumber(found[1]) or now
  local fine, opts = pcall(cjson.decode, found[3] or "{}")
  if fine and type(opts) == "table" then due = due + (tonumber(opts["delay"]) or 0) end
  return math.max(due, tonumber(found[2] or 0) or 0)
end

local oldest = now
local function look(ids)
  for _, id in ipairs(ids) do oldest = math.min(oldest, since(id) or now) end
end
local most = tonumber(ARGV[2])
look(call("LRANGE", KEYS[1], -most, -1))
look(call("ZRANGE", KEYS[2], 0, most - 1))
-- One that has become due is moved by the next fetch. Its score is the time, shifted by 12 bits.
local first = call("ZRANGE", KEYS[3], 0, 0, "WITHSCORES")
if first[2] then oldest = math.min(oldest, math.floor(tonumber(first[2]) / 4096)) end
return now - oldest
"""

# How many jobs of each lane are parked, exactly for so many keys; what lies beyond is taken to be
# like them.
_PARKED: Final = """
local call, counts, looked_at = redis.call, {}, tonumber(ARGV[2])
local all = call("ZCARD", KEYS[1])
for _, member in ipairs(call("ZRANGE", KEYS[1], 0, looked_at - 1)) do
  local key = ARGV[1] .. "parked:" .. string.match(member, "|(.*)$")
  local first = call("ZRANGE", key, 0, 0)[1]
  if first then
    local lane = string.match(first, "^([^:]*):")
    counts[lane] = (counts[lane] or 0) + call("ZCARD", key)
  end
end
local answer = {}
for lane, count in pairs(counts) do
  if all > looked_at then count = math.floor(count * all / looked_at) end
  table.insert(answer, lane)
  table.insert(answer, count)
end
return answer
"""


@dataclass(frozen=True, slots=True)
class Depth:
    """One lane's queue.

    Attributes:
        states: How many jobs are in each of :data:`STATES`.
        oldest_seconds: How long the oldest of those that could run has been waiting.
    """

    states: Mapping[str, int]
    oldest_seconds: float


def depths(lanes: Sequence[Lane]) -> dict[Lane, Depth]:
    """Look at the queues of some lanes.

    Raises:
        BrokerUnavailable: Redis does not answer.
    """
    base = door.base()
    with sync_client() as client:
        pipeline: Any = client.pipeline(transaction=False)
        pipeline.eval(_PARKED, 1, f"{base}keys", base, _KEYS_LOOKED_AT)
        for lane in lanes:
            keys = queue_scripts(queue_name(lane)).keys
            for name in LISTS.values():
                pipeline.llen(keys[name])
            for name in SETS.values():
                pipeline.zcard(keys[name])
            looked_at = [keys[name] for name in ("wait", "prioritized", "delayed")]
            pipeline.eval(_OLDEST, len(looked_at), *looked_at, keys[""], _LOOKED_AT)
        parked, *answers = pipeline.execute()
    counts = dict(zip(parked[::2], map(int, parked[1::2]), strict=True))
    step = len(answers) // max(len(lanes), 1)
    return {
        lane: _depth(answers[number * step : (number + 1) * step], counts.get(lane, 0))
        for number, lane in enumerate(lanes)
    }


def _depth(answers: Sequence[Any], parked: int) -> Depth:
    *counts, oldest_ms = map(int, answers)
    states = dict(zip((*LISTS, *SETS), counts, strict=True))
    # A key's list may still name jobs that are gone.
    parked = min(parked, states["delayed"])
    states["delayed"] -= parked
    return Depth({**states, PARKED: parked}, max(oldest_ms, 0) / 1000)
