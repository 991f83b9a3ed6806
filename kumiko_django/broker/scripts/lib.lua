-- What all steps of the door share. `plan` is what the caller says:
--   base    prefix of the door's own keys
--   queues  prefix of all queues; with "<lane>:<id>" it is the key of a job
--   ref     the job that the step is about, "<lane>:<id>"
--   rules   see Rules in broker/door.py
local call = redis.call
local DAY = 24 * 3600 * 1000
local NEAR = 200
local LOOKED_AT = 50

local rules = plan.rules or {}

local function now_ms()
  local time = call("TIME")
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function key_of(ref) return plan.queues .. ref end

-- "worker:<id>" -> "<prefix of the lane's queue>", "<id>"
local function parts_of(ref)
  local lane, id = string.match(ref, "^([^:]*):(.*)$")
  return plan.queues .. lane .. ":", id
end

local function is_live(ref)
  local found = call("HMGET", key_of(ref), "name", "finishedOn", "kumiko")
  return found[1] and not found[2] and found[3] ~= "void"
end

-- ----------------------------------------------------------------------------------------- places

local function places_of(key) return plan.base .. "places:" .. key end

-- How many have a place; a full key is looked through first, some at a time, longest unseen first.
local function occupied(key, limit)
  local places = places_of(key)
  local count = call("ZCARD", places)
  if count < limit then return count end
  local now = now_ms()
  for _, ref in ipairs(call("ZRANGE", places, 0, LOOKED_AT - 1)) do
    if not is_live(ref) then
      call("ZREM", places, ref)
    elseif count > LOOKED_AT then
      call("ZADD", places, now, ref)
    end
  end
  return call("ZCARD", places)
end

-- A sorted set of the sets with a place and the hashes with a slot that are taken, by when the
-- sweeper has looked at them last.
local taken = plan.base .. "taken"

local function drop_place(key, ref)
  call("ZREM", places_of(key), ref)
  if call("EXISTS", places_of(key)) == 0 then call("ZREM", taken, "places:" .. key) end
end

-- The keys that a job has its places in.
local place_keys = {rules.mode_key}
if rules.cap_key and rules.cap_key ~= rules.mode_key then table.insert(place_keys, rules.cap_key) end

local function take_places(ref)
  local now = now_ms()
  for _, key in ipairs(place_keys) do
    call("ZADD", places_of(key), now, ref)
    call("ZADD", taken, "NX", now, "places:" .. key)
  end
end

local function drop_places(ref)
  for _, key in ipairs(place_keys) do drop_place(key, ref) end
end

-- ------------------------------------------------------------------------------- slots and parking

-- A hash: who has a slot -> the lock it was claimed under; empty while it is granted only.
local function slots_of(key) return plan.base .. "slots:" .. key end
-- A sorted set: who waits for one, by the order of admission.
local function parked_of(key) return plan.base .. "parked:" .. key end
-- A sorted set of "<slots>|<key>" with somebody parked, by when it was looked at last.
local index = plan.base .. "keys"

local function hold(key, ref, owner)
  call("HSET", slots_of(key), ref, owner)
  call("ZADD", taken, "NX", now_ms(), "slots:" .. key)
end

local function let_go(key, ref)
  local held = call("HDEL", slots_of(key), ref) == 1
  if call("EXISTS", slots_of(key)) == 0 then call("ZREM", taken, "slots:" .. key) end
  return held
end

local function counted() return call("INCR", plan.base .. "counter") end

local function tidy(key, limit)
  if call("EXISTS", parked_of(key)) == 0 then call("ZREM", index, limit .. "|" .. key) end
end

local function note_parked(key, limit, ref, seq)
  call("ZADD", parked_of(key), seq, ref)
  call("ZADD", index, "NX", now_ms(), limit .. "|" .. key)
end

-- Gives a slot to a parked job, and puts it to the front of its queue.
local function grant(key, ref)
  call("ZREM", parked_of(key), ref)
  if not is_live(ref) then return false end
  hold(key, ref, "")
  local queue, id = parts_of(ref)
  -- Not delayed any more: somebody has promoted it, and it claims what is granted.
  if call("ZREM", queue .. "delayed", id) == 1 then
    call("HSET", queue .. id, "delay", 0)
    call("RPUSH", queue .. "wait", id)
    if call("HEXISTS", queue .. "meta", "paused") == 0 then
      call("ZADD", queue .. "marker", 0, "0")
    end
    call("XADD", queue .. "events", "MAXLEN", "~", 10000, "*",
      "event", "waiting", "jobId", id, "prev", "delayed")
  end
  return true
end

-- Grants what is free. Jobs that are gone do not hold it up for long: the sweeper goes on with them.
local function hand_over(key, limit)
  local granted = 0
  for _ = 1, 1000 do
    if call("HLEN", slots_of(key)) >= limit then break end
    local head = call("ZRANGE", parked_of(key), 0, 0)[1]
    if not head then break end
    if grant(key, head) then granted = granted + 1 end
  end
  tidy(key, limit)
  return granted
end

-- Whether a job that has a slot cannot come to use it.
local function is_idle(ref)
  if not is_live(ref) then return true end
  local queue, id = parts_of(ref)
  return call("ZSCORE", queue .. "delayed", id)
end

-- Drops the slots of jobs that were removed, or ended or postponed by other clients.
local function reap(key)
  for _, ref in ipairs(call("HRANDFIELD", slots_of(key), LOOKED_AT)) do
    if is_idle(ref) then let_go(key, ref) end
  end
end

-- Takes a slot if one is free and nobody who was admitted earlier waits for it.
local function acquire(ref, seq, owner)
  local key, limit = rules.slot_key, rules.slots
  if call("HEXISTS", slots_of(key), ref) == 1 then
    call("HSET", slots_of(key), ref, owner)
    return true
  end
  if call("HLEN", slots_of(key)) >= limit then reap(key) end
  while call("HLEN", slots_of(key)) < limit do
    local head = call("ZRANGE", parked_of(key), 0, 0, "WITHSCORES")
    if not head[1] or head[1] == ref or tonumber(head[2]) > seq then
      call("ZREM", parked_of(key), ref)
      hold(key, ref, owner)
      tidy(key, limit)
      return true
    end
    grant(key, head[1])
  end
  return false
end

-- ---------------------------------------------------------------------------------------- withdrawal

-- Takes an id out of a list if it is near one of its ends; searching all of it would cost what the
-- list is long.
local function taken_out(list, id)
  for _, rank in ipairs({1, -1}) do
    if call("LPOS", list, id, "RANK", rank, "MAXLEN", NEAR) then
      call("LREM", list, rank, id)
      return true
    end
  end
  return false
end

local function may_be_withdrawn(ref)
  if not is_live(ref) or call("EXISTS", key_of(ref) .. ":lock") == 1 then return false end
  -- A child of another client's flow: nobody would tell its parent, which would wait for ever.
  if call("HEXISTS", key_of(ref), "parentKey") == 1 then return false end
  local queue, id = parts_of(ref)
  return call("ZSCORE", queue .. "delayed", id) or call("ZSCORE", queue .. "prioritized", id)
    -- Without a lock and active: its worker is lost, and it comes back.
    or not call("LPOS", queue .. "active", id, "MAXLEN", 1000)
end

-- Another client's deduplication, as the package's own removal ends it: nothing is added under its
-- id while the job that holds it does not end. (Newer clients see that it is gone.)
local function end_deduplication(queue, id)
  local named = call("HGET", queue .. id, "deid")
  if named and call("GET", queue .. "de:" .. named) == id then
    call("DEL", queue .. "de:" .. named, queue .. "dn:" .. named)
  end
end

-- Removes a job that does not run.
local function withdraw(ref)
  local queue, id = parts_of(ref)
  local job = queue .. id
  end_deduplication(queue, id)
  if call("ZREM", queue .. "delayed", id) == 1 or call("ZREM", queue .. "prioritized", id) == 1
      or taken_out(queue .. "wait", id) then
    call("DEL", job, job .. ":logs", job .. ":dependencies", job .. ":processed", job .. ":failed",
      job .. ":unsuccessful")
    call("XADD", queue .. "events", "MAXLEN", "~", 10000, "*",
      "event", "removed", "jobId", id, "prev", "waiting")
  else
    -- Its id stays in the middle of `wait`. Whoever fetches it does not run it: we drop it, other
    -- clients fail it because of `defa`.
    call("HSET", job, "kumiko", "void", "defa", "a later dispatch has taken its place")
  end
  drop_places(ref)
  if rules.slot_key then
    call("ZREM", parked_of(rules.slot_key), ref)
    if let_go(rules.slot_key, ref) then
      hand_over(rules.slot_key, rules.slots)
    else
      tidy(rules.slot_key, rules.slots)
    end
  end
end

-- What is noted with a debounced job: when the first of its row was dispatched, and how often the
-- job had been fetched without being run.
local function debounce_mark(first, fetched) return string.format("%d/%d", first, fetched) end

-- The peers that make room for `ref`, and when the first of them was dispatched.
local function peers_that_give_way(ref)
  local found, first = {}, nil
  for _, peer in ipairs(call("ZRANGE", places_of(rules.mode_key), 0, -1)) do
    if peer ~= ref and may_be_withdrawn(peer) then
      local job = call("HMGET", key_of(peer), "ats", "kumiko")
      if rules.mode == "replace" then
        table.insert(found, peer)
      else
        -- One that has begun, and is in backoff, say, is not replaced by a later payload.
        local since, fetched = string.match(job[2] or "", "^(%d+)/(%d+)$")
        if since and (tonumber(job[1]) or 0) <= tonumber(fetched) then
          table.insert(found, peer)
          first = math.min(first or math.huge, tonumber(since))
        end
      end
    end
  end
  return found, first
end

-- How long a debounced job waits: the quiet time, but not beyond the longest wait.
local function quiet_time(first, now)
  if not rules.max_wait_ms then return rules.window_ms end
  return math.max(0, math.min(rules.window_ms, first + rules.max_wait_ms - now))
end

local function window_key() return plan.base .. "window:" .. rules.window_key end
