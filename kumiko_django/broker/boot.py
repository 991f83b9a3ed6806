"""Which boot jobs a data set has had: the marks in Redis (B104-B106), and taking one back.

The marks are fields of one hash beside the lane's queue, so another prefix, another lane or an
empty Redis has none (B228). They outlive the jobs: retention must not make one run again (B106).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any, Final

from kumiko_django.broker.bullmq import queue_scripts
from kumiko_django.broker.connection import async_client, sync_client
from kumiko_django.broker.keys import queue_name
from kumiko_django.definitions.options import Lane

UNKNOWN_SECONDS: Final = 90 * 24 * 60 * 60
"""A mark is dropped when for so long every worker that started had no such boot job (P56)."""
_MARKED: Final = "1"

# A worker of the old version, which does not know the job yet, must not take its mark: it only
# notes since when the mark means nothing to anybody; whoever knows the job takes the note away.
_TIDY: Final = """
local known = {}
for i = 3, #ARGV do
  known[ARGV[i]] = true
  redis.call("HDEL", KEYS[2], ARGV[i])
end
local dropped = {}
for _, id in ipairs(redis.call("HKEYS", KEYS[1])) do
  if not known[id] then
    redis.call("HSETNX", KEYS[2], id, ARGV[1])
    if tonumber(redis.call("HGET", KEYS[2], id)) <= tonumber(ARGV[2]) then
      redis.call("HDEL", KEYS[1], id)
      redis.call("HDEL", KEYS[2], id)
      dropped[#dropped + 1] = id
    end
  end
end
return dropped
"""

# All or nothing: a job that waits or runs will run, or does; there is nothing to take back.
_RESET: Final = """
local function ended(id)
  return redis.call("ZSCORE", KEYS[2], id) or redis.call("ZSCORE", KEYS[3], id)
end
for i = 2, #ARGV do
  if redis.call("EXISTS", ARGV[1] .. ARGV[i]) == 1 and not ended(ARGV[i]) then
    return -1
  end
end
local marks = 0
for i = 2, #ARGV do
  local id, key = ARGV[i], ARGV[1] .. ARGV[i]
  redis.call("ZREM", KEYS[2], id)
  redis.call("ZREM", KEYS[3], id)
  redis.call("DEL", key, key .. ":logs", key .. ":dependencies", key .. ":processed")
  marks = marks + redis.call("HDEL", KEYS[1], id)
end
return marks
"""


class StillQueued(Exception):
    """The boot job waits or runs at this moment."""


def marks_key(lane: Lane) -> str:
    """``<key prefix>:<queue>:kumiko-boot-enqueued`` (B104)."""
    return f"{queue_scripts(queue_name(lane)).keys['']}kumiko-boot-enqueued"


async def marked(lane: Lane, job_ids: Sequence[str]) -> bool:
    """Whether one of these boot jobs has been queued in this data set.

    Raises:
        BrokerUnavailable: Redis does not answer.
    """
    async with async_client() as client:
        marks: Any = await client.hmget(marks_key(lane), list(job_ids))
    return any(mark is not None for mark in marks)


async def mark(lane: Lane, job_id: str) -> None:
    """Note that a boot job has been queued.

    Raises:
        BrokerUnavailable: Redis does not answer.
    """
    async with async_client() as client:
        await client.hset(marks_key(lane), job_id, _MARKED)


async def tidy(lane: Lane, known: Collection[str]) -> list[str]:
    """Drop the marks of boot jobs that there have not been for :data:`UNKNOWN_SECONDS`.

    Args:
        lane: The lane.
        known: The ids of the boot jobs that this process knows.

    Returns:
        The ids whose marks were dropped.

    Raises:
        BrokerUnavailable: Redis does not answer.
    """
    now, key = int(time.time()), marks_key(lane)
    async with async_client() as client:
        dropped: Any = await client.eval(
            _TIDY, 2, key, f"{key}:unknown-since", now, now - UNKNOWN_SECONDS, *known
        )
    return [str(job_id) for job_id in dropped]


def reset(lane: Lane, job_ids: Sequence[str]) -> bool:
    """Forget that a boot job has been queued, and what is left of it in the queue.

    Returns:
        Whether it had been marked.

    Raises:
        StillQueued: It waits or runs; nothing was changed.
        BrokerUnavailable: Redis does not answer.
    """
    keys = queue_scripts(queue_name(lane)).keys
    with sync_client() as client:
        answer: Any = client.eval(
            _RESET, 3, marks_key(lane), keys["completed"], keys["failed"], keys[""], *job_ids
        )
    if answer < 0:
        raise StillQueued
    return bool(answer)
