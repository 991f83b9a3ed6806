"""Reading and changing a lane's schedulers from sync code. Nothing is written that stands already.

Changes are steps that look whether what they were decided on still holds
(:mod:`kumiko_django.broker.scheduler_scripts`); the answer says whether they were made.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from redis.exceptions import NoScriptError

from kumiko_django.broker.bullmq import queue_scripts
from kumiko_django.broker.connection import sync_client
from kumiko_django.broker.exchange import Command, exchange
from kumiko_django.broker.keys import queue_name
from kumiko_django.broker.scheduler_scripts import BEAT, DONE, REMOVE, REWRITE, TAKEN
from kumiko_django.broker.schedulers import (
    Call,
    Record,
    Schedule,
    asked,
    flat,
    milliseconds,
    moment,
    now_milliseconds,
    put,
    record_keys,
    state_key,
)
from kumiko_django.broker.ticks import pairs
from kumiko_django.definitions.options import Lane

TickState: TypeAlias = Literal["planned", "due", "fetched", "ended", "gone", "astray"]
"""``planned``: waits for its time. ``due``: can be fetched, or could if there were a worker.
``fetched``: a worker has it. ``ended``: it has run. ``gone``: there is no such job. ``astray``:
there is one, but in no list of the queue."""

FORGOTTEN_MS: Final = 7 * 24 * 3600 * 1000
"""A set of schedules that nobody has had for so long is as good as never seen."""
_TRIES: Final = 10
_SCORE_UNIT: Final = 0x1000
"""The queue orders delayed jobs by time, shifted by twelve bits."""


@dataclass(frozen=True, slots=True)
class Beat:
    """Who speaks for a lane's schedules.

    Attributes:
        digest: The set of schedules of this process.
        gap_ms: After so many milliseconds without a word something counts as away.
        starting: Whether this is the process's first word.
    """

    digest: str
    gap_ms: int
    starting: bool


def read(lane: Lane) -> list[Record]:
    """All schedulers of a lane, those of other clients included.

    Raises:
        BrokerUnavailable: Redis does not answer.
    """
    key = queue_scripts(queue_name(lane)).keys["repeat"]
    (found,) = _ask([("ZRANGE", key, 0, -1, "WITHSCORES")])
    scores = pairs(found)
    # What stands under such a name need not be a scheduler; then it is not ours.
    records = _ask([("HGETALL", f"{key}:{id_}") for id_ in scores], strict=False)
    return [
        Record(lane, id_, pairs(fields) if isinstance(fields, list) else {}, score)
        for (id_, score), fields in zip(scores.items(), records, strict=True)
    ]


def read_one(lane: Lane, id_: str) -> Record:
    """One scheduler; without fields if there is none.

    Raises:
        BrokerUnavailable: Redis does not answer.
    """
    schedulers, record = record_keys(lane, id_)
    fields, score = _ask([("HGETALL", record), ("ZSCORE", schedulers, id_)])
    return Record(lane, id_, pairs(fields), score or "")


def tick_state(record: Record) -> TickState:
    """Where the pending tick of a scheduler is.

    Raises:
        BrokerUnavailable: Redis does not answer.
    """
    keys, tick = queue_scripts(queue_name(record.lane)).keys, record.tick_id
    job, score = _ask(
        [
            ("HMGET", f"{keys['']}{tick}", "name", "finishedOn"),
            ("ZSCORE", keys["delayed"], tick),
        ]
    )
    name, finished = job
    if name is None:
        return "gone"
    if score is not None:
        is_due = float(score) / _SCORE_UNIT < now_milliseconds() + 1
        return "due" if is_due else "planned"
    if finished is not None:
        return "ended"
    waiting, paused, prioritized, active = _ask(
        [
            ("LPOS", keys["wait"], tick),
            ("LPOS", keys["paused"], tick),
            ("ZSCORE", keys["prioritized"], tick),
            ("LPOS", keys["active"], tick),
        ]
    )
    if active is not None:
        return "fetched"
    return "astray" if (waiting, paused, prioritized) == (None, None, None) else "due"


def set_up(record: Record, schedule: Schedule) -> bool:
    """Write a scheduler that differs, and give it its next tick; whether it was done.

    A tick that waits for its time is replaced. One that is due or runs stays: it is an occurrence
    like any other, and the next one is made from the new record (bullmq-python 1.8).

    Raises:
        BrokerUnavailable: Redis does not answer.
    """
    state = tick_state(record) if record.score else "gone"
    if state in ("due", "fetched"):
        ask = json.dumps({**asked(record), "fields": flat(schedule.fields)})
        return _run(Call(REWRITE, record_keys(record.lane, record.id), [ask])) == DONE
    replaced = record.tick_id if state == "planned" else ""
    after = moment(now_milliseconds())
    for _ in range(_TRIES):
        after = schedule.trigger.next_after(after)
        answer = _run(put(record, milliseconds(after), schedule, replaced))
        if answer != TAKEN:
            return answer == DONE
    return False


def put_next(record: Record, next_ms: int) -> bool:
    """Give a scheduler its next tick, at this time or the first after it that is free.

    Raises:
        BrokerUnavailable: Redis does not answer.
        DefinitionError, ValueError: The record has no such time.
    """
    for _ in range(_TRIES):
        answer = _run(put(record, next_ms))
        if answer != TAKEN:
            return answer == DONE
        next_ms = milliseconds(record.trigger().next_after(moment(next_ms)))
    return False


def remove(record: Record, *, with_due_tick: bool) -> bool:
    """Remove a scheduler and the tick that waits for its time; whether it was done.

    Args:
        record: As it was read.
        with_due_tick: Also a tick that is due: nobody knows its job any more.

    Raises:
        BrokerUnavailable: Redis does not answer.
    """
    keys = queue_scripts(queue_name(record.lane)).keys
    is_planned = tick_state(record) == "planned" if record.score else False
    tick = record.tick_id if is_planned or with_due_tick else ""
    places = [keys[name] for name in ("delayed", "events", "wait", "paused", "prioritized")]
    ask = json.dumps({**asked(record), "tick": tick, "due": with_due_tick})
    call = Call(REMOVE, [*record_keys(record.lane, record.id), *places], [ask])
    return _run(call) == DONE


def beat(lane: Lane, word: Beat) -> bool:
    """Say that a process with this set of schedules is there; whether its set holds.

    Raises:
        BrokerUnavailable: Redis does not answer.
    """
    args = [word.digest, now_milliseconds(), word.gap_ms, int(word.starting), FORGOTTEN_MS]
    return _run(Call(BEAT, [state_key(lane)], args)) == 1


def _run(call: Call) -> int:
    command = ("EVALSHA", call.script.sha, len(call.keys), *call.keys, *call.args)
    with sync_client() as client:
        (answer,) = exchange(client, [command])
        if isinstance(answer, NoScriptError):
            answer = exchange(client, [("SCRIPT", "LOAD", call.script.text), command])[1]
        return int(_checked(answer))


def _ask(commands: Sequence[Command], *, strict: bool = True) -> list[Any]:
    if not commands:
        return []
    with sync_client() as client:
        answers = exchange(client, commands)
        return [_checked(answer) for answer in answers] if strict else answers


def _checked(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer
