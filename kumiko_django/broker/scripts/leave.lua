-- What a settled job gives back.
--   plan.ends    "end": all; "turn": its slot, it comes back for another; "keep": nothing
--   plan.token   the lock it ran under
local function leave()
  local ref = plan.ref
  if plan.ends == "end" then
    drop_places(ref)
    call("HDEL", key_of(ref), "kumiko")
  end
  if plan.ends == "keep" or not rules.slot_key then return end
  local owner = call("HGET", slots_of(rules.slot_key), ref)
  if owner == plan.token or owner == "" then
    let_go(rules.slot_key, ref)
    hand_over(rules.slot_key, rules.slots)
  end
end
