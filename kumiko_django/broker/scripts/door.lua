-- Admits a new job, in one step with adding it. Answers {status, reason}.
--   plan.delay    milliseconds until it is due, by its dispatch
local ref = plan.ref
if call("EXISTS", key_of(ref)) == 1 then
  -- Sent twice, because the first answer was lost.
  local is_parked = rules.slot_key and call("ZSCORE", parked_of(rules.slot_key), ref)
  return {is_parked and "parked" or "queued", ""}
end

if rules.mode == "throttle" and call("EXISTS", window_key()) == 1 then
  return {"throttled", "throttled"}
end
if rules.mode == "skip" and occupied(rules.mode_key, 1) >= 1 then
  return {"skipped", "skipped"}
end
local peers, first = {}, nil
if rules.mode == "replace" or rules.mode == "debounce" then
  peers, first = peers_that_give_way(ref)
end
if rules.cap_key and not rules.parks_over_cap and (#peers == 0 or rules.mode_key ~= rules.cap_key)
    and occupied(rules.cap_key, rules.cap) >= rules.cap then
  return {"skipped", "skipped:max-per-tenant"}
end

local answer = add()
if type(answer) == "number" and answer < 0 then return {"refused", tostring(answer)} end
for _, peer in ipairs(peers) do withdraw(peer) end
local status, mark = "queued", "0"
if #peers > 0 then status = rules.mode == "replace" and "replaced" or "debounced" end
take_places(ref)

local queue, id = parts_of(ref)
if rules.mode == "throttle" then
  call("SET", window_key(), ref, "PX", rules.window_ms)
elseif rules.mode == "debounce" then
  local now = now_ms()
  first = first or now
  mark = debounce_mark(first, 0)
  local delay = quiet_time(first, now)
  if delay < rules.window_ms then
    call("ZADD", queue .. "delayed", (now + delay) * 0x1000, id)
    call("ZADD", queue .. "marker", now + delay, "1")
  end
elseif rules.mode == "sequential" and plan.delay == 0 then
  mark = counted()
  if not acquire(ref, mark, "") then
    if call("ZREM", queue .. "prioritized", id) == 0 then taken_out(queue .. "wait", id) end
    call("ZADD", queue .. "delayed", (now_ms() + DAY) * 0x1000, id)
    call("HSET", queue .. id, "delay", DAY)
    note_parked(rules.slot_key, rules.slots, ref, mark)
    status = "parked"
  end
end
call("HSET", key_of(ref), "kumiko", mark)
return {status, status == "queued" and "" or status == "parked" and "sequential" or status}
