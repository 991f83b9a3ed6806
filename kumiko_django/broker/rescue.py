"""Getting jobs out of the way that the queue's own scripts trip over.

Other clients may write to the same queues, and a broken record must not go round for ever: a script
that fails has already taken the job from the list, and the stalled check would bring it back.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, cast

import redis.asyncio
from redis.exceptions import ResponseError

_MADE_BY_FETCHING = frozenset({"processedOn", "ats", "pb", "stc", "defa", "delay"})
_SCRIPT_FAULT = re.compile(r"user_script:\d|Error running script|WRONGTYPE|not an integer")
_TAKEN_LOOKED_AT = 200

# As the package does when it resumes a queue: those that were there first come first. No more at a
# time than Lua can unpack.
_GATHER = """
local wait, paused, meta, marker = unpack(KEYS)
if redis.call("EXISTS", wait) == 0 then
  if redis.call("EXISTS", paused) == 0 then return 0 end
  redis.call("RENAME", paused, wait)
else
  local ids = redis.call("LRANGE", paused, 0, 6999)
  if #ids == 0 then return 0 end
  redis.call("RPUSH", wait, unpack(ids))
  redis.call("LTRIM", paused, #ids, -1)
end
if redis.call("HEXISTS", meta, "paused") == 0 then
  redis.call("ZADD", marker, 0, "0")
end
return redis.call("LLEN", paused)
"""


def is_script_fault(error: ResponseError) -> bool:
    """Whether a script failed because of what it found, so that trying again cannot help.

    Refusals of the server (read-only, out of memory, loading) have classes or codes of their own.
    """
    return type(error) is ResponseError and bool(_SCRIPT_FAULT.search(str(error)))


class Rescue:
    """Plain commands where the scripts fail. Bound to one queue and one event loop."""

    def __init__(self, client: redis.asyncio.Redis, keys: Mapping[str, str]) -> None:
        self._client = client
        self._keys = keys

    def is_ghost(self, data: Mapping[str, str]) -> bool:
        """Whether a fetched job had been deleted: the fetch itself made the hash that it gave."""
        return _MADE_BY_FETCHING.issuperset(data)

    async def drop(self, job_id: str) -> None:
        """Forget an id whose job was deleted: nothing to run, nothing to keep."""
        async with self._client.pipeline(transaction=True) as pipeline:
            self._forget(pipeline, job_id)
            pipeline.delete(f"{self._keys['']}{job_id}")
            await pipeline.execute()

    async def taken_under(self, token: str) -> str | None:
        """The id of the job that a failed fetch has taken under ``token``, if it got so far."""
        taken = await self._client.lrange(self._keys["active"], 0, _TAKEN_LOOKED_AT - 1)
        for job_id in map(str, taken):
            if await self._client.get(f"{self._keys['']}{job_id}:lock") == token:
                return job_id
        return None

    async def put_aside(self, job_id: str, error: str | None) -> None:
        """Finish a job without the script: ``failed`` with an error, else ``completed``."""
        key, now_ms = f"{self._keys['']}{job_id}", round(time.time() * 1000)
        is_job = await self._client.type(key) == "hash"
        async with self._client.pipeline(transaction=True) as pipeline:
            self._forget(pipeline, job_id)
            if is_job:
                field, value = ("returnvalue", "null") if error is None else ("failedReason", error)
                pipeline.hset(key, mapping={field: value, "finishedOn": str(now_ms)})
                pipeline.hdel(key, "defa")
                state = "completed" if error is None else "failed"
                pipeline.zadd(self._keys[state], {job_id: now_ms})
            await pipeline.execute(raise_on_error=False)

    async def gather_paused(self) -> None:
        """Move jobs out of the list that BullMQ 5 keeps for paused queues into ``wait``.

        All others leave them in ``wait``, and so do we. When BullMQ 5 resumes the queue, it renames
        its list to ``wait`` and drops what has come there since; unless it has none.
        """
        names = [self._keys[name] for name in ("wait", "paused", "meta", "marker")]
        if not await self._client.exists(names[1]):
            return
        while await cast("Any", self._client.eval(_GATHER, len(names), *names)):
            pass

    def _forget(self, pipeline: redis.asyncio.client.Pipeline, job_id: str) -> None:
        pipeline.lrem(self._keys["active"], 0, job_id)
        pipeline.srem(self._keys["stalled"], job_id)
        pipeline.delete(f"{self._keys['']}{job_id}:lock")
