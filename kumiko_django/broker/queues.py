"""Looking into queues: how much there is of what, and whether Redis is fit for them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError, ResponseError

from kumiko_django.broker.address import RedisAddress
from kumiko_django.broker.bullmq import queue_scripts
from kumiko_django.broker.connection import current_address, new_async_client
from kumiko_django.broker.errors import unavailable
from kumiko_django.broker.keys import queue_name
from kumiko_django.definitions.options import Lane

logger = logging.getLogger("kumiko_django.broker")

Client: TypeAlias = Redis
"""A connection to the broker, for rooms that only pass it on."""

_RETRIES_LOOKED_AT: Final = 1000
_COUNTED: Final = ("wait", "prioritized", "active", "delayed")
_COUNT: Final = """
local answer = {}
for lane = 1, #KEYS / 4 do
  local wait, prioritized, active, delayed = unpack(KEYS, lane * 4 - 3, lane * 4)
  local retrying = 0
  for _, id in ipairs(redis.call("ZRANGE", delayed, 0, ARGV[2] - 1)) do
    local attempts = redis.pcall("HGET", ARGV[2 + lane] .. id, "atm")
    if type(attempts) == "string" and attempts ~= "" and attempts ~= "0" then
      retrying = retrying + 1
    end
  end
  answer[lane] = {
    redis.call("LLEN", wait), redis.call("ZCARD", prioritized), redis.call("LLEN", active),
    redis.call("ZCARD", delayed), redis.call("ZCOUNT", delayed, "-inf", ARGV[1]), retrying,
  }
end
return answer
"""


@dataclass(frozen=True, slots=True)
class LaneCounts:
    """How many jobs of a lane are in which state.

    Attributes:
        waiting: Ready to run, without priority.
        prioritized: Ready to run, with one.
        active: Running somewhere.
        delayed: Waiting for their time.
        due: Those of the delayed whose time has come; the next fetch takes them.
        retrying: Those of the delayed that have run before: in backoff.
    """

    waiting: int
    prioritized: int
    active: int
    delayed: int
    due: int
    retrying: int

    @property
    def is_drained(self) -> bool:
        """Whether nothing is left to do now; work planned for later does not count."""
        return not (self.waiting or self.prioritized or self.active or self.due or self.retrying)


async def lane_counts(client: Client, lane: Lane) -> LaneCounts:
    """Count a lane's jobs."""
    (counts,) = await counts_of(client, [lane])
    return counts


async def counts_of(client: Client, lanes: Sequence[Lane]) -> list[LaneCounts]:
    """Count the jobs of some lanes, all at one moment.

    One after the other would miss a job that queues another on a lane that was counted before, and
    has ended when its own is.
    """
    keys = [queue_scripts(queue_name(lane)).keys for lane in lanes]
    names = [of_lane[state] for of_lane in keys for state in _COUNTED]
    # The score is the time in milliseconds, shifted by twelve bits that keep the order of arrival.
    due = (round(time.time() * 1000) + 1) * 0x1000 - 1
    prefixes = [of_lane[""] for of_lane in keys]
    answer: Any = await cast(
        "Any", client.eval(_COUNT, len(names), *names, due, _RETRIES_LOOKED_AT, *prefixes)
    )
    return [LaneCounts(*map(int, counts)) for counts in answer]


async def connect(seconds: float) -> Client:
    """A worker's client that has reached Redis (P90).

    Args:
        seconds: How long to keep trying.

    Raises:
        BrokerUnavailable: It was not reached in time, or refuses the credentials.
        SettingsError: The settings name no usable Redis.
    """
    address = current_address()
    client = new_async_client(address, patient=True)
    try:
        async with asyncio.timeout(seconds):
            await _ping(client, address, seconds)
    except (RedisError, OSError) as error:
        await client.aclose()
        raise unavailable(error, address) from error
    except asyncio.CancelledError:
        await client.aclose()
        raise
    return client


async def _ping(client: Client, address: RedisAddress, seconds: float) -> None:
    pause, told, time_is_up = 0.1, False, False
    while True:
        try:
            await client.ping()
            return
        except (RedisError, OSError) as error:
            if not _may_pass(error):
                raise
            last = error
        if not told:
            logger.info("Redis at %s is not reached yet; trying for %g s", address, seconds)
            told = True
        try:
            await asyncio.sleep(pause)
        except asyncio.CancelledError:
            time_is_up = True
        if time_is_up:
            # What went wrong last says more than "timed out". Raised out here, so that its own
            # cause, which the message is made of, stays.
            raise last
        pause = min(pause * 2, 1.0)


def _may_pass(error: Exception) -> bool:
    return not isinstance(error, AuthenticationError | NoPermissionError | ResponseError)


async def server_problems(client: Client) -> tuple[list[str], list[str]]:
    """What is wrong with the server for our purposes.

    Returns:
        Errors (it will not work) and warnings (it may lose jobs), each a sentence.
    """
    errors: list[str] = []
    warnings: list[str] = []
    try:
        info: dict[str, Any] = await client.info()
    except ResponseError:
        return [], ["INFO is not allowed for this user; version and eviction are not checked."]
    version = str(info.get("redis_version", "0"))
    if _numbers(version) < (6, 2):
        errors.append(f"The server speaks Redis {version}; 6.2 is the oldest that works.")
    if info.get("cluster_enabled"):
        errors.append("The server is a cluster node; clusters are not supported.")
    policy = info.get("maxmemory_policy")
    if policy not in (None, "noeviction"):
        warnings.append(
            f"maxmemory-policy is {policy!r}: the server may evict jobs. Set it to 'noeviction'."
        )
    if info.get("role") not in (None, "master"):
        errors.append("The server is a read-only replica; connect to the primary.")
    return errors, warnings


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
