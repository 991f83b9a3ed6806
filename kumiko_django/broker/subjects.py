"""Jobs of the queues that hold a person's data: ended ones are erased, others are told of."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from kumiko_django.broker.bullmq import queue_scripts
from kumiko_django.broker.connection import sync_client
from kumiko_django.broker.envelope import read_payload
from kumiko_django.broker.keys import queue_name
from kumiko_django.broker.records import stored_records
from kumiko_django.definitions.options import Lane
from kumiko_django.definitions.subjects import ERASED

# In the order in which jobs go, so that one that moves meanwhile is met at least once.
_LISTS: Final = ("wait", "paused", "active")
_SETS: Final = ("prioritized", "waiting-children", "delayed", "completed", "failed")
_ENDED: Final = frozenset({"completed", "failed"})
_CHUNK: Final = 200
_KEPT: Final = ("_tenantId", "_triggeredById", "_triggerName", "_correlationId", "_v")

# Only where it still is what was looked at: another client may have sent it to the queue again.
_ERASE: Final = """
if not redis.call("ZSCORE", KEYS[2], ARGV[1]) then return 0 end
if redis.call("HGET", KEYS[1], "data") ~= ARGV[2] then return 0 end
redis.call("HSET", KEYS[1], "data", ARGV[3])
for _, field in ipairs({"returnvalue", "failedReason"}) do
  if redis.call("HEXISTS", KEYS[1], field) == 1 then
    redis.call("HSET", KEYS[1], field, field == "returnvalue" and cjson.encode(ARGV[4]) or ARGV[4])
  end
end
redis.call("HDEL", KEYS[1], "stacktrace", "progress")
redis.call("DEL", KEYS[3])
return 1
"""

IsTheirs = Callable[[str, Any, Any], bool]
"""Given a job's name, its tenant as it stands there, and its payload."""


class QueuePortion(NamedTuple):
    """What was found in one step.

    Attributes:
        ended: Jobs that have ended, and were erased.
        pending: Jobs that have not, and were left.
        unrecorded: Ends of runs that the history does not have yet, and were left.
    """

    ended: int = 0
    pending: int = 0
    unrecorded: int = 0


def erase(lane: Lane, is_theirs: IsTheirs, *, dry_run: bool) -> Iterator[QueuePortion]:
    """Erase a person in the queue of a lane; looks at every job of it.

    An erased job has no payload any more, and an origin that nobody can read: should anyone retry
    it, it is refused and its handler is not called (B133).

    Raises:
        BrokerUnavailable: Redis does not answer.
    """
    for state, ids in _jobs(lane):
        theirs = [found for found in _read(lane, ids) if is_theirs(*_said(found))]
        if state not in _ENDED:
            yield QueuePortion(pending=len(theirs))
        elif dry_run:
            yield QueuePortion(ended=len(theirs))
        else:
            yield QueuePortion(ended=sum(_erase(lane, state, found) for found in theirs))
    for records in stored_records(lane):
        rows = (_loaded(record.partition("\n")[0]) for record in records.values())
        yield QueuePortion(
            unrecorded=sum(
                is_theirs(str(row.get("job_name")), row.get("tenant_id"), _loaded(row["payload"]))
                for row in rows
                if isinstance(row, dict) and isinstance(row.get("payload"), str)
            )
        )


class _Found(NamedTuple):
    job_id: str
    name: str
    text: str


def _jobs(lane: Lane) -> Iterator[tuple[str, list[str]]]:
    keys = queue_scripts(queue_name(lane)).keys
    for state in _LISTS:
        first = 0
        while ids := _asked("lrange", keys[state], first, first + _CHUNK - 1):
            yield state, ids
            first += _CHUNK
    for state in _SETS:
        cursor = 0
        while True:
            # A scan meets all that are there from its beginning to its end.
            cursor, scored = _asked("zscan", keys[state], cursor, count=_CHUNK)
            if scored:
                yield state, list({job_id for job_id, _ in scored})
            if not int(cursor):
                break


def _asked(command: str, *args: Any, **kwargs: Any) -> Any:
    with sync_client() as client:
        return getattr(client, command)(*args, **kwargs)


def _read(lane: Lane, ids: list[str]) -> list[_Found]:
    prefix = queue_scripts(queue_name(lane)).keys[""]
    with sync_client() as client:
        pipeline = client.pipeline(transaction=False)
        for job_id in ids:
            pipeline.hmget(f"{prefix}{job_id}", "name", "data")
        answers: Any = pipeline.execute(raise_on_error=False)
    return [
        _Found(job_id, answer[0], answer[1])
        for job_id, answer in zip(ids, answers, strict=True)
        if isinstance(answer, list) and None not in answer
    ]


def _said(found: _Found) -> tuple[str, Any, Any]:
    data = _loaded(found.text)
    if not isinstance(data, dict):
        return found.name, None, None
    return found.name, data.get("_tenantId"), read_payload(data)


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _erase(lane: Lane, state: str, found: _Found) -> int:
    keys = queue_scripts(queue_name(lane)).keys
    data = _loaded(found.text)
    left = {name: data[name] for name in _KEPT if name in data} | {"_writeOrigin": ERASED}
    job = f"{keys['']}{found.job_id}"
    names = [job, keys[state], f"{job}:logs"]
    answer: Any = _asked(
        "eval", _ERASE, len(names), *names, found.job_id, found.text, json.dumps(left), ERASED
    )
    return int(answer)
