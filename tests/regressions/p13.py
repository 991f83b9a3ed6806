"""Between the copy and the completion the worker dies."""

from __future__ import annotations

from tests.regressions.regression import Regression, Replacement

REGRESSION = Regression(
    was=(
        "the copy of a job that had to wait was added in one step and the job completed "
        "in another one; a worker that died between the two left both, and both ran."
    ),
    test=(
        "tests/integration/admission/test_slots.py::"
        "TestSequential::test_a_worker_that_dies_when_it_has_put_a_job_off_leaves_one_job"
    ),
    fails_at='assert ran == ["foreign"]',
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
-- The worker completes it, if it lives to do so.
return {"skipped", "sequential"}
""",
        ),
    ),
)
