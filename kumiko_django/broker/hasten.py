"""Making delayed jobs due now: for tests, which do not wait for a backoff."""

from __future__ import annotations

import time
from typing import Any, Final

from kumiko_django.broker.bullmq import queue_scripts
from kumiko_django.broker.connection import async_client
from kumiko_django.broker.keys import queue_name
from kumiko_django.definitions.options import Lane

# In their order, so that what was to come first does. The next tick of a scheduler stays: there
# would be another after each, without end. The marker wakes a worker that waits for later.
_HASTEN: Final = """
local hastened = 0
for _, id in ipairs(redis.call("ZRANGE", KEYS[1], 0, -1)) do
  local failed = tonumber(redis.call("HGET", ARGV[1] .. id, "atm") or 0) or 0
  local planned = string.sub(id, 1, 7) ~= "repeat:"
  if failed > 0 or (ARGV[3] == "1" and planned) then
    redis.call("ZADD", KEYS[1], "XX", tonumber(ARGV[2]) * 4096 + math.min(hastened, 4095), id)
    hastened = hastened + 1
  end
end
if hastened > 0 then
  redis.call("ZADD", KEYS[2], 0, "0")
end
return hastened
"""


async def hasten(lane: Lane, *, later: bool) -> int:
    """Make delayed jobs of a lane due.

    Args:
        lane: The lane.
        later: Also those that have not failed: planned for later, or deferred. Else only retries.

    Returns:
        How many there were.

    Raises:
        BrokerUnavailable: Redis does not answer.
    """
    keys = queue_scripts(queue_name(lane)).keys
    now_ms = time.time_ns() // 1_000_000
    async with async_client() as client:
        answer: Any = await client.eval(
            _HASTEN, 2, keys["delayed"], keys["marker"], keys[""], now_ms, "1" if later else "0"
        )
    return int(answer)
