"""Peers that are delayed or have a priority are not seen."""

from __future__ import annotations

from tests.regressions.regression import Regression, Replacement

REGRESSION = Regression(
    was=(
        "peers were looked for in the lists of waiting and active jobs; one with a "
        "priority, a delay or in backoff stands in another set."
    ),
    test=(
        "tests/integration/admission/test_modes.py::"
        "TestSkip::test_prioritised_and_delayed_peers_count"
    ),
    fails_at='assert send().status == "skipped"',
    changes=(
        Replacement(
            "kumiko_django/broker/scripts/lib.lua",
            old="""\
  local count = call("ZCARD", places)
  if count < limit then return count end
""",
            new="""\
  local seen = 0
  for _, ref in ipairs(call("ZRANGE", places, 0, -1)) do
    local queue, id = parts_of(ref)
    if call("LPOS", queue .. "wait", id) or call("LPOS", queue .. "active", id) then
      seen = seen + 1
    end
  end
  if seen < limit then return seen end
  local count = call("ZCARD", places)
""",
        ),
    ),
)
