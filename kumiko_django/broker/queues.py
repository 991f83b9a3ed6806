"""Looking into queues: how much there is of what, and whether Redis is fit for them."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

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
    keys = queue_scripts(queue_name(lane)).keys
    pipeline = client.pipeline(transaction=True)
    pipeline.llen(keys["wait"])
    pipeline.zcard(keys["prioritized"])
    pipeline.llen(keys["active"])
    pipeline.zcard(keys["delayed"])
    # The score is the time in milliseconds, shifted by twelve bits that keep the order of arrival.
    pipeline.zcount(keys["delayed"], "-inf", (round(time.time() * 1000) + 1) * 0x1000 - 1)
    pipeline.zrange(keys["delayed"], 0, _RETRIES_LOOKED_AT - 1)
    waiting, prioritized, active, delayed, due, soonest = await pipeline.execute()
    retrying = await _retrying(client, keys[""], soonest)
    return LaneCounts(waiting, prioritized, active, delayed, due, retrying)


async def _retrying(client: Client, prefix: str, job_ids: list[str]) -> int:
    if not job_ids:
        return 0
    pipeline = client.pipeline(transaction=False)
    for job_id in job_ids:
        pipeline.hget(f"{prefix}{job_id}", "atm")
    return sum(1 for attempts in await pipeline.execute() if attempts not in (None, "", "0"))


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
