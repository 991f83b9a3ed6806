"""Records of ended runs that are on their way from the queue to the history (design 9).

A job is settled in the queue and its run's record stored beside it in one step; the history is
written afterwards, many runs in one commit, and then the record is dropped. So the queue alone
decides what became of a job, and a worker that dies between the two steps takes nothing with it:
whoever comes next finds the record here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from redis.exceptions import ResponseError

from kumiko_django.broker.bullmq import Script, ScriptCall, queue_scripts, script_of
from kumiko_django.broker.channel import Channel
from kumiko_django.broker.connection import sync_client
from kumiko_django.broker.keys import queue_name
from kumiko_django.definitions.options import Lane

if TYPE_CHECKING:
    from kumiko_django.broker.delivery import Delivery

logger = logging.getLogger("kumiko_django.broker")

FORMER_RUNS: Final = 100
"""As many former runs of a job are asked for; the queue gives a job up before that."""
_SCANNED: Final = 200
_DROPPED: Final = 500

# The package's script runs as a function of its own, with the keys and arguments that it expects.
# A negative number is how these scripts refuse.
_WITH_RECORD: Final = """
local all_keys, all_args = KEYS, ARGV
local function settle()
  local KEYS = {unpack(all_keys, 1, #all_keys - 1)}
  local ARGV = {unpack(all_args, 1, #all_args - 2)}
  <the package's script>
end
local answer = settle()
if type(answer) ~= "number" or answer >= 0 then
  redis.call("HSET", all_keys[#all_keys], all_args[#all_args - 1], all_args[#all_args])
end
return answer
"""

# The same around it, once more: the data of a job whose script has no room for it.
_WITH_DATA: Final = """
local given_keys, given_args = KEYS, ARGV
local function record()
  local KEYS = {unpack(given_keys, 1, #given_keys - 1)}
  local ARGV = {unpack(given_args, 1, #given_args - 1)}
  <the script with the record>
end
local result = record()
if type(result) ~= "number" or result >= 0 then
  redis.call("HSET", given_keys[#given_keys], "data", given_args[#given_args])
end
return result
"""


@lru_cache(maxsize=32)
def recording(file_name: str) -> Script:
    """One of the package's scripts, followed by the storing of a record.

    It takes one more key (the hash) and two more arguments (field and record).
    """
    return Script.of(_WITH_RECORD.replace("<the package's script>", script_of(file_name).text))


@lru_cache(maxsize=32)
def rewriting(file_name: str) -> Script:
    """:func:`recording`, followed by the writing of a job's data.

    It takes one more key (the job) and one more argument (the data).
    """
    return Script.of(_WITH_DATA.replace("<the script with the record>", recording(file_name).text))


class OtherKind(Exception):
    """Something else stands where the records of runs are kept."""


def records_key(lane: Lane) -> str:
    """The hash that holds a lane's records. The colon keeps it apart from every job's id."""
    return f"{queue_scripts(queue_name(lane)).keys['']}kumiko:unrecorded"


def field_of(job_id: str, created_at_ms: int, start: int) -> str:
    """The field of one run. A job that is sent again is another one: its creation differs."""
    return f"{job_id}/{created_at_ms}/{start}"


def record_field(delivery: Delivery) -> str:
    """The field of a delivery's run."""
    return field_of(delivery.job_id, delivery.created_at_ms, delivery.start)


async def settle(channel: Channel, lane: Lane, call: ScriptCall, field: str, record: str) -> Any:
    """Settle a job and store the record of its run in one step; answers what the script does.

    Raises:
        RedisError: Redis refuses, or is away: then it may have been done.
    """
    if not record and call.rewrite is None:
        return await channel.run(script_of(call.script), call.keys, call.args)
    if not record and call.rewrite is not None:
        # The data goes where the record would: into a hash, if the script does not refuse.
        key, data = call.rewrite
        return await channel.run(
            recording(call.script), [*call.keys, key], [*call.args, "data", data]
        )
    keys, args = [*call.keys, records_key(lane)], [*call.args, field, record]
    if call.rewrite is None:
        return await channel.run(recording(call.script), keys, args)
    key, data = call.rewrite
    return await channel.run(rewriting(call.script), [*keys, key], [*args, data])


async def is_stored(channel: Channel, lane: Lane, field: str, record: str) -> bool:
    """Whether exactly this record is stored: its run has settled the job."""
    return bool(record) and await _ask(channel, lane, "HGET", field) == record


async def of_former_runs(channel: Channel, delivery: Delivery) -> tuple[str, ...]:
    """Records of a job's earlier runs, oldest first; their workers may not live to write them."""
    if delivery.start <= 1:
        return ()
    starts = range(max(1, delivery.start - FORMER_RUNS), delivery.start)
    fields = [field_of(delivery.job_id, delivery.created_at_ms, start) for start in starts]
    found = await _ask(channel, delivery.lane, "HMGET", *fields)
    return tuple(record for record in found if record is not None)


async def store(channel: Channel, lane: Lane, field: str, record: str) -> None:
    """Store a record where the settling was done by other means than a script."""
    if not record:
        return
    await _ask(channel, lane, "HSET", field, record)


async def refuse_other_kind(channel: Channel, lane: Lane) -> None:
    """Look whether records can be kept.

    Raises:
        OtherKind: They cannot: no run could be settled with its record in one step.
        RedisError: Redis is away.
    """
    key = records_key(lane)
    kind = await channel.execute("TYPE", key)
    if kind not in ("none", "hash"):
        raise OtherKind(
            f"Redis key {key} holds a {kind}, which is none of ours. Rename or remove it and start "
            "the worker again."
        )


async def _ask(channel: Channel, lane: Lane, command: str, *arguments: str) -> Any:
    try:
        return await channel.execute(command, records_key(lane), *arguments)
    except ResponseError:
        await refuse_other_kind(channel, lane)
        raise


def drop(channel: Channel, lane: Lane, fields: Sequence[str]) -> None:
    """Drop records that are in the history. Not waited for; what is left is found again."""
    for first in range(0, len(fields), _DROPPED):
        answer = channel.execute("HDEL", records_key(lane), *fields[first : first + _DROPPED])
        answer.add_done_callback(_note_failure)


def _note_failure(answer: asyncio.Future[Any]) -> None:
    if not answer.cancelled() and answer.exception() is not None:
        logger.debug("Records could not be dropped", exc_info=answer.exception())


def stored_records(lane: Lane) -> Iterator[dict[str, str]]:
    """All records of a lane by field, in portions; from sync code.

    Raises:
        BrokerUnavailable: Redis does not answer.
    """
    key, cursor = records_key(lane), 0
    while True:
        with sync_client() as client:
            answer: Any = client.hscan(key, cursor, count=_SCANNED)
        cursor, portion = int(answer[0]), answer[1]
        if portion:
            yield portion
        if cursor == 0:
            return


def drop_records(lane: Lane, fields: Sequence[str]) -> None:
    """:func:`drop` from sync code.

    Raises:
        BrokerUnavailable: Redis does not answer.
    """
    for first in range(0, len(fields), _DROPPED):
        with sync_client() as client:
            client.hdel(records_key(lane), *fields[first : first + _DROPPED])
