"""A job that has to wait adds a copy of itself and completes."""

from __future__ import annotations

from tests.regressions.regression import Regression, Replacement

REGRESSION = Regression(
    was=(
        "a sequential job that found another one running added itself again, under a new "
        "id and with all its attempts, to be tried in 200 ms, and completed."
    ),
    test=(
        "tests/integration/admission/test_slots.py::"
        "TestSequential::test_one_that_cannot_be_admitted_when_it_is_fetched_is_parked"
    ),
    fails_at="assert kept.parked(KEY) == [foreign] == queue.delayed",
    changes=(
        Replacement(
            "kumiko_django/broker/scripts/claim.lua",
            old="""\
local answer = postpone(DAY)
if answer < 0 then return {"lost"} end
note_parked(rules.slot_key, rules.slots, ref, seq)
return {"parked"}
""",
            new="""\
local queue, id = parts_of(ref)
local told, copy = call("HMGET", job, "name", "data"), tostring(call("INCR", queue .. "id"))
call("HSET", queue .. copy, "name", told[1], "data", told[2], "opts", "{}",
  "timestamp", now_ms(), "delay", 200, "priority", 0)
call("ZADD", queue .. "delayed", (now_ms() + 200) * 0x1000, copy)
call("LREM", queue .. "active", 1, id)
call("DEL", job .. ":lock")
call("HSET", job, "finishedOn", now_ms(), "returnvalue", "null")
call("ZADD", queue .. "completed", now_ms(), id)
return {"parked"}
""",
        ),
    ),
)
