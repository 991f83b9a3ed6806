"""Schedulers of a lane as they stand in Redis: BullMQ's own records, with a mark that says ours.

A record is what any BullMQ client reads and goes on from: name, pattern or interval, template. The
mark adds what BullMQ has no word for. Whoever fetches a tick makes the next one *from the record*,
not from its own definitions: so a process of another version, which has the job with another
pattern or not at all, continues what holds. The times are ours (bullmq-python 1.7).
"""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, cast

from kumiko_django.broker.bullmq import Script, queue_scripts
from kumiko_django.broker.envelope import Envelope, as_json
from kumiko_django.broker.keys import queue_name, scheduler_id
from kumiko_django.broker.options import JobOptions
from kumiko_django.broker.scheduler_scripts import MARK_FIELD, put_tick
from kumiko_django.definitions.fan_out import wrapper_of
from kumiko_django.definitions.job import JobDefinition
from kumiko_django.definitions.options import Lane
from kumiko_django.definitions.scheduling import CATCH_UPS, CatchUp, scheduled_trigger
from kumiko_django.definitions.triggers import Cron, Every, Scheduled

_MARK_VERSION: Final = 1
_NOT_COMPARED: Final = frozenset({"ic", "offset", MARK_FIELD})
"""What changes with every tick, or is filled in by other clients."""
_OF_ONE_JOB: Final = frozenset({"jobId", "timestamp", "delay"})


@dataclass(frozen=True, slots=True)
class Call:
    """A script call of ours, ready to send."""

    script: Script
    keys: list[str]
    args: list[Any]


@dataclass(frozen=True, slots=True)
class Schedule:
    """What a definition wants to stand in Redis.

    Attributes:
        lane: Where.
        id: The scheduler's id (B095).
        trigger: When.
        fields: The record, mark included.
    """

    lane: Lane
    id: str
    trigger: Scheduled
    fields: Mapping[str, str]

    @property
    def mark(self) -> str:
        """What says that the record is ours, and with what content."""
        return self.fields[MARK_FIELD]

    @classmethod
    def of(cls, definition: JobDefinition) -> Schedule | None:
        """The schedule of a definition, or None if no clock starts it."""
        trigger = scheduled_trigger(definition)
        if trigger is None:
            return None
        fields = {"name": template_name(definition), **_times(trigger)}
        # The package would leave the queue's defaults out, and ticks would stay for ever (P50).
        options = JobOptions.for_definition(_queued(definition)).to_bullmq("", 0)
        template = {key: value for key, value in options.items() if key not in _OF_ONE_JOB}
        fields["opts"] = as_json(template)
        # Nobody dispatches a tick: no user, no trace, no chain of work, and no tenant (B100, B171).
        fields["data"] = Envelope({}).encode()[1]
        fields[MARK_FIELD] = _mark(fields, definition.effective_catch_up)
        return cls(definition.lane, scheduler_id(definition.qualified_name), trigger, fields)


def template_name(definition: JobDefinition) -> str:
    """The name under which a definition's ticks are queued (B098)."""
    return _queued(definition).qualified_name


def _queued(definition: JobDefinition) -> JobDefinition:
    """What a tick is a job of: for every tenant, that is the wrapper."""
    return wrapper_of(definition) if definition.per_tenant else definition


def _times(trigger: Scheduled) -> dict[str, str]:
    if isinstance(trigger, Every):
        return {"every": str(trigger.milliseconds)}
    return {"pattern": trigger.pattern, "tz": trigger.zone_name}


def _mark(fields: Mapping[str, str], catch_up: CatchUp) -> str:
    content = json.dumps([sorted(fields.items()), catch_up])
    digest = sha256(content.encode()).hexdigest()[:16]
    return json.dumps(
        {"v": _MARK_VERSION, "catchUp": catch_up, "digest": digest}, separators=(",", ":")
    )


@dataclass(frozen=True, slots=True)
class Record:
    """What stands in Redis under a scheduler's id.

    Attributes:
        lane: Where.
        id: The scheduler's id.
        fields: The record; empty where there is none.
        score: The time of its pending tick in milliseconds, as Redis writes it; empty without.
    """

    lane: Lane
    id: str
    fields: Mapping[str, str]
    score: str

    @property
    def mark(self) -> str:
        """Our mark, or empty: then another client has written it."""
        return self.fields.get(MARK_FIELD, "")

    @property
    def tick_ms(self) -> int:
        """The time of the pending tick."""
        return int(float(self.score or 0))

    @property
    def tick_id(self) -> str:
        """The id of the pending tick's job, or empty."""
        return tick_id(self.id, self.tick_ms) if self.score else ""

    @property
    def catch_up(self) -> CatchUp:
        """What becomes of missed occurrences."""
        rule = _read_mark(self.mark).get("catchUp")
        return cast("CatchUp", rule) if rule in CATCH_UPS else "one"

    def trigger(self) -> Scheduled:
        """When it runs.

        Raises:
            DefinitionError: The record has no time that this process understands.
        """
        if every := self.fields.get("every"):
            return Every(int(every) / 1000 if every.isdecimal() else 0.0)
        return Cron(self.fields.get("pattern", ""), self.fields.get("tz"))

    def says(self, schedule: Schedule) -> bool:
        """Whether it is what a definition wants, word for word."""
        if not self.score or self.mark != schedule.mark:
            return False
        return _compared(self.fields) == _compared(schedule.fields)

    def next_ms(self, now_ms: int) -> int:
        """The time of the tick after the pending one.

        Late ticks are one run for all that was missed, except with ``catch_up="all"``.

        Raises:
            DefinitionError, ValueError: The record has no such time.
        """
        base = self.tick_ms if self.catch_up == "all" else max(self.tick_ms, now_ms)
        return milliseconds(self.trigger().next_after(moment(base)))


def _compared(fields: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in fields.items() if key not in _NOT_COMPARED}


def _read_mark(mark: str) -> dict[str, Any]:
    try:
        value = json.loads(mark or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def tick_id(scheduler: str, millis: int) -> str:
    """The id of a tick's job: bullmq's own, of exactly three parts (B096)."""
    return f"repeat:{scheduler}:{millis}"


def moment(millis: int) -> dt.datetime:
    """A time of the queue's."""
    return dt.datetime.fromtimestamp(millis / 1000, dt.UTC)


def milliseconds(time_: dt.datetime) -> int:
    """A time as the queue counts it."""
    return round(time_.timestamp() * 1000)


def now_milliseconds() -> int:
    """The time by this machine's clock, which all BullMQ clients go by."""
    return time.time_ns() // 1_000_000


def record_keys(lane: Lane, id_: str) -> list[str]:
    """The keys of a lane's schedulers, and of one of their records."""
    keys = queue_scripts(queue_name(lane)).keys
    return [keys["repeat"], f"{keys['repeat']}:{id_}"]


def state_key(lane: Lane) -> str:
    """The hash that says which set of schedules holds in a lane, and since when it has workers."""
    return f"{queue_scripts(queue_name(lane)).keys['']}kumiko-schedulers"


def put(record: Record, next_ms: int, schedule: Schedule | None = None, replaced: str = "") -> Call:
    """The call that makes a tick and says so in the record, if the record is still as it was read.

    Args:
        record: As it was read.
        next_ms: The tick's time.
        schedule: Write the record anew; otherwise the record is the template.
        replaced: A tick that waits for its time, to be taken away.
    """
    scripts = queue_scripts(queue_name(record.lane))
    fields = record.fields if schedule is None else schedule.fields
    tick = tick_id(record.id, next_ms)
    options = _tick_options(fields, record, tick, next_ms)
    call = scripts.add(fields["name"], fields.get("data") or "{}", options, record.id)
    ask: dict[str, Any] = {
        **asked(record), "tick": tick, "next": str(next_ms), "replaced": replaced
    }  # fmt: skip
    if schedule is not None:
        ask["fields"] = flat(fields)
    own = [*record_keys(record.lane, record.id), scripts.keys["delayed"], scripts.keys["events"]]
    return Call(put_tick(call.script), [*call.keys, *own], [*call.args, json.dumps(ask)])


def asked(record: Record) -> dict[str, Any]:
    """What a script is to compare, in the form that it takes."""
    prefix = queue_scripts(queue_name(record.lane)).keys[""]
    return {"id": record.id, "score": record.score, "mark": record.mark, "prefix": prefix}


def flat(fields: Mapping[str, str]) -> list[str]:
    """Fields and values, one after the other."""
    return [part for pair in fields.items() for part in pair]


def _tick_options(
    fields: Mapping[str, str], record: Record, tick: str, next_ms: int
) -> dict[str, Any]:
    now_ms = now_milliseconds()
    template: dict[str, Any] = json.loads(fields.get("opts") or "{}")
    # What Node and the package read to make the tick after this one themselves.
    repeat: dict[str, Any] = {"count": _count(record) + 1}
    if "every" in fields:
        repeat["every"] = int(fields["every"])
    else:
        repeat |= {"pattern": fields["pattern"], "tz": fields.get("tz")}
    options = {
        **template,
        "jobId": tick,
        "timestamp": now_ms,
        "prevMillis": next_ms,
        "repeatJobKey": record.id,
        "repeat": {key: value for key, value in repeat.items() if value is not None},
    }
    if next_ms > now_ms:
        options["delay"] = next_ms - now_ms
    return options


def _count(record: Record) -> int:
    count = record.fields.get("ic", "0")
    return int(count) if count.isdecimal() and len(count) < 16 else 0
