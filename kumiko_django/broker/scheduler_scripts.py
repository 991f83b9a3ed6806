"""The Lua of schedulers: each step looks whether what it was decided on still holds.

Many processes look after the same schedulers. A step names the tick and the mark that it has seen;
if another process was faster, it changes nothing and answers ``CHANGED``. So each occurrence is
made once, whoever makes it, and needs no lock.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from kumiko_django.broker.bullmq import Script, script_of

DONE: Final = 1
CHANGED: Final = -1
"""Something else holds by now: look again."""
TAKEN: Final = -2
"""A tick of this very time has run already."""

MARK_FIELD: Final = "kumiko"
"""The field that says that a scheduler is ours. Other clients do not look at it; one that writes
the scheduler anew drops it."""

_STILL_HOLDS: Final = """
local function still_holds(ask, repeat_key, record)
  return (redis.call("ZSCORE", repeat_key, ask.id) or "") == ask.score
    and (redis.call("HGET", record, "kumiko") or "") == ask.mark
end
local function remove_job(prefix, id, events)
  local key = prefix .. id
  redis.call("DEL", key, key .. ":logs", key .. ":dependencies", key .. ":processed",
    key .. ":failed", key .. ":unsuccessful")
  redis.call("XADD", events, "*", "event", "removed", "jobId", id, "prev", "delayed")
end
local function rewrite(record, fields)
  local count = redis.call("HGET", record, "ic") or "1"
  redis.call("DEL", record)
  redis.call("HSET", record, "ic", count, unpack(fields))
end
"""

# As in the package's own scripts, the score of a scheduler is the time of its pending tick, and
# both are written together. The package's script adds the tick as any other job.
_PUT_TICK: Final = (
    _STILL_HOLDS
    + """
local all_keys, all_args = KEYS, ARGV
local repeat_key, record, delayed, events = unpack(all_keys, #all_keys - 3)
local ask = cjson.decode(all_args[#all_args])
local function add()
  local KEYS = {unpack(all_keys, 1, #all_keys - 4)}
  local ARGV = {unpack(all_args, 1, #all_args - 1)}
  <the package's script>
end
if not still_holds(ask, repeat_key, record) then return -1 end
local found = {}
if ask.replaced ~= ask.tick then
  found = redis.call("HMGET", ask.prefix .. ask.tick, "name", "finishedOn")
  if found[2] then return -2 end
end
if ask.replaced ~= "" then
  if redis.call("ZREM", delayed, ask.replaced) == 0 then return -1 end
  remove_job(ask.prefix, ask.replaced, events)
end
if ask.fields then
  rewrite(record, ask.fields)
else
  redis.call("HINCRBY", record, "ic", 1)
end
if not found[1] then add() end
redis.call("ZADD", repeat_key, ask.next, ask.id)
return 1
"""
)

REWRITE: Final = Script.of(
    _STILL_HOLDS
    + """
local ask = cjson.decode(ARGV[1])
if not still_holds(ask, KEYS[1], KEYS[2]) then return -1 end
rewrite(KEYS[2], ask.fields)
return 1
"""
)
"""Keys: the schedulers, the record. Changes the record and leaves its pending tick alone."""

REMOVE: Final = Script.of(
    _STILL_HOLDS
    + """
local ask = cjson.decode(ARGV[1])
local repeat_key, record, delayed, events = unpack(KEYS, 1, 4)
if not still_holds(ask, repeat_key, record) then return -1 end
local taken = 0
if ask.tick ~= "" then
  taken = redis.call("ZREM", delayed, ask.tick)
  for place = 5, #KEYS do
    if taken == 0 and ask.due then
      if redis.call("TYPE", KEYS[place]).ok == "zset" then
        taken = redis.call("ZREM", KEYS[place], ask.tick)
      else
        taken = redis.call("LREM", KEYS[place], 1, ask.tick)
      end
    end
  end
end
if taken > 0 then remove_job(ask.prefix, ask.tick, events) end
redis.call("ZREM", repeat_key, ask.id)
redis.call("DEL", record)
return 1
"""
)
"""Keys: the schedulers, the record, ``delayed``, the events, and where a due tick may wait.
Removes a scheduler with its pending tick; with ``due`` also one that waits to be fetched."""

BEAT: Final = Script.of(
    """
local key, own, now, gap = KEYS[1], "set:" .. ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local starting, forgotten = ARGV[4] == "1", tonumber(ARGV[5])
local function is_away(time) return not time or now - tonumber(time) > gap end
local seen = redis.call("HGET", key, "seen")
if is_away(seen) then redis.call("HSET", key, "since", now, "gone", seen or 0) end
if not seen or now > tonumber(seen) then redis.call("HSET", key, "seen", now) end
local owner = redis.call("HGET", key, "owner") or ""
if owner ~= own then
  local arrives = starting and is_away(redis.call("HGET", key, own))
  if arrives or is_away(redis.call("HGET", key, owner)) then
    redis.call("HSET", key, "owner", own)
    owner = own
  end
end
redis.call("HSET", key, own, now)
redis.call("PEXPIRE", key, forgotten)
local all = redis.call("HGETALL", key)
for place = 1, #all, 2 do
  if string.sub(all[place], 1, 4) == "set:" and now - tonumber(all[place + 1]) > forgotten then
    redis.call("HDEL", key, all[place])
  end
end
return owner == own and 1 or 0
"""
)
"""Says that a process with this set of schedules is there, and answers whether its set holds.

Key: the lane's hash. Arguments: the set, the time, after how long something counts as away, whether
this is the process's first word, after how long a set is forgotten; times in milliseconds.
"""


@lru_cache(maxsize=8)
def put_tick(adding: str) -> Script:
    """The script that makes the next tick, around one of the package's that add a job.

    It takes four more keys (the schedulers, the record, ``delayed``, the events) and one more
    argument.
    """
    return Script.of(_PUT_TICK.replace("<the package's script>", script_of(adding).text))
