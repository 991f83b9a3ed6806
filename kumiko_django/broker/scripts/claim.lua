-- A job was fetched: may it run? Answers {"run", fence}, {"parked"}, {"skipped", reason},
-- or {"lost"} where the job is not the caller's any more.
--   plan.token   the lock it was fetched under
--   plan.tick    whether a scheduler has made it
local ref, job = plan.ref, key_of(plan.ref)
if call("GET", job .. ":lock") ~= plan.token then return {"lost"} end

local mark = call("HGET", job, "kumiko")
if not mark then
  -- It has not come through our door: a scheduler's tick, or another producer's job.
  if rules.mode == "skip" and occupied(rules.mode_key, 1) >= 1 then
    return {"skipped", "skipped"}
  end
  if rules.cap_key and plan.tick and occupied(rules.cap_key, rules.cap) >= rules.cap then
    return {"skipped", "skipped:max-per-tenant"}
  end
  if rules.mode == "throttle" and not call("SET", window_key(), ref, "PX", rules.window_ms, "NX") then
    return {"skipped", "throttled"}
  end
  mark = "0"
  if rules.mode == "replace" then
    for _, peer in ipairs(peers_that_give_way(ref)) do withdraw(peer) end
  elseif rules.mode == "debounce" then
    local peers, first = peers_that_give_way(ref)
    local now = now_ms()
    first = first or now
    local answer = postpone(quiet_time(first, now))
    if answer < 0 then return {"lost"} end
    for _, peer in ipairs(peers) do withdraw(peer) end
    take_places(ref)
    call("HSET", job, "kumiko", debounce_mark(first, tonumber(call("HGET", job, "ats")) or 0))
    return {"parked"}
  end
  take_places(ref)
  call("HSET", job, "kumiko", mark)
end
if not rules.slot_key then return {"run", 0} end

local seq = tonumber(mark) or 0
if seq == 0 then
  seq = counted()
  call("HSET", job, "kumiko", seq)
end
if acquire(ref, seq, plan.token) then return {"run", counted()} end
local answer = postpone(DAY)
if answer < 0 then return {"lost"} end
note_parked(rules.slot_key, rules.slots, ref, seq)
return {"parked"}
