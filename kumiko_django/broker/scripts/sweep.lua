-- Looks after keys with parked work and with places, those first that were not looked at for longest.
-- Answers {how many with parked work were looked at, how many slots were granted}.
--   plan.age    only keys not looked at for so many milliseconds
--   plan.lock   length of a lock in milliseconds
--   plan.most   keys with parked work at a time
--   plan.fewer  of those with anything taken at a time
local now, granted = now_ms(), 0

-- Fetched by somebody who does not claim slots: another client.
local function is_unclaimed(ref, owner)
  local lock = call("GET", key_of(ref) .. ":lock")
  if not lock or lock == owner then return false end
  local since = tonumber(call("HGET", key_of(ref), "processedOn"))
  return since and since < now - plan.lock
end

local due = call("ZRANGEBYSCORE", index, "-inf", now - plan.age, "LIMIT", 0, plan.most)
for _, entry in ipairs(due) do
  local limit, key = string.match(entry, "^(%d+)|(.*)$")
  call("ZADD", index, "XX", now, entry)
  local slots = slots_of(key)
  for _, ref in ipairs(call("HRANDFIELD", slots, LOOKED_AT)) do
    if is_idle(ref) or is_unclaimed(ref, call("HGET", slots, ref)) then let_go(key, ref) end
  end
  granted = granted + hand_over(key, tonumber(limit))
end

-- What a job holds that another client has removed or ended holds nobody up: what is full is looked
-- through first. But it would stay for ever where nobody comes any more.
local old = call("ZRANGEBYSCORE", taken, "-inf", now - plan.age, "LIMIT", 0, plan.fewer)
for _, entry in ipairs(old) do
  local kind, key = string.match(entry, "^(%a+):(.*)$")
  call("ZADD", taken, "XX", now, entry)
  if kind == "slots" then
    reap(key)
  else
    for _, ref in ipairs(call("ZRANGE", places_of(key), 0, LOOKED_AT - 1)) do
      if is_live(ref) then
        call("ZADD", places_of(key), now, ref)
      else
        drop_place(key, ref)
      end
    end
  end
  if call("EXISTS", plan.base .. entry) == 0 then call("ZREM", taken, entry) end
end
return {#due, granted}
