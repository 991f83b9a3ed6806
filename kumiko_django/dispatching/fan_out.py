"""One job for each tenant: the children of a fan-out, added in bulk (B064-B068, P39-P46).

Their ids follow from the wrapper's, so a fan-out that was broken off is simply done again: what is
there already is not added a second time.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kumiko_django.admission.rules import rules_for
from kumiko_django.broker import producer
from kumiko_django.broker.door import Decision
from kumiko_django.broker.envelope import Envelope, Metadata, TenantEnvelopes
from kumiko_django.broker.keys import child_id
from kumiko_django.broker.options import JobOptions
from kumiko_django.broker.producer import NewJob
from kumiko_django.definitions.concurrency import quiet_ms
from kumiko_django.definitions.fan_out import spread_of
from kumiko_django.definitions.job import JobDefinition
from kumiko_django.definitions.options import Priority
from kumiko_django.dispatching import observed, skips
from kumiko_django.history.queries import ended_children
from kumiko_django.types.jsonable import JSON

CHUNK_CHILDREN: Final = 500
CHUNK_BYTES: Final = 4 * 1024 * 1024
"""How many children are made at a time, and how large these may be in all."""
_CLOCKS_DIFFER: Final = dt.timedelta(minutes=1)
"""By so much may the clock of who queued a wrapper be ahead of the clock of who runs it."""


@dataclass(frozen=True, slots=True)
class FanOut:
    """What a wrapper says about its children.

    Attributes:
        definition: Their job.
        wrapper_id: The wrapper's id, of which theirs are made.
        wrapper_queued_at: When the wrapper was queued.
        payload: Theirs as well.
        meta: Their metadata, apart from the tenant.
        priority: Theirs as well.
        is_repeated: Whether an earlier run of the wrapper may have added some.
    """

    definition: JobDefinition
    wrapper_id: str
    wrapper_queued_at: dt.datetime
    payload: dict[str, JSON]
    meta: Metadata
    priority: Priority
    is_repeated: bool


@dataclass(frozen=True, slots=True)
class Count:
    """How far a fan-out has come.

    Attributes:
        planned: How many tenants there are.
        enqueued: How many children this run has added.
        parked: How many it has added that wait for their turn.
        skipped: How many the door has not let in.
        already_there: How many were there before it.
    """

    planned: int
    enqueued: int = 0
    parked: int = 0
    skipped: int = 0
    already_there: int = 0

    @property
    def done(self) -> int:
        """For how many tenants it is decided."""
        return self.enqueued + self.parked + self.skipped + self.already_there

    def and_then(self, decisions: Sequence[Decision], already_there: int) -> Count:
        """The count after another portion."""
        parked = sum(made.status == "parked" for made in decisions)
        skipped = sum(not made.is_accepted for made in decisions)
        return Count(
            self.planned,
            self.enqueued + len(decisions) - parked - skipped,
            self.parked + parked,
            self.skipped + skipped,
            self.already_there + already_there,
        )


def add_children(fan_out: FanOut, tenants: Sequence[str], tell: Callable[[Count], None]) -> Count:
    """Add a child for each tenant, in their order; harmless to repeat.

    Args:
        fan_out: What they have in common.
        tenants: The active tenants, each once.
        tell: Called after every portion.

    Raises:
        BrokerUnavailable: Redis did not take all of them.
    """
    count = Count(len(tenants))
    for portion in _portions(_Children(fan_out, len(tenants)), tenants):
        there = _already_there(fan_out, [job.job_id for job in portion])
        new = [job for job in portion if job.job_id not in there]
        decisions = producer.add_many(new)
        observed.count(new, decisions)
        skips.record(fan_out.definition, new, decisions)
        count = count.and_then(decisions, len(portion) - len(new))
        tell(count)
    return count


class _Children:
    """Makes the children of one fan-out."""

    def __init__(self, fan_out: FanOut, count: int) -> None:
        self._fan_out = fan_out
        self._count = count
        self._now_ms = time.time_ns() // 1_000_000
        self._envelopes: TenantEnvelopes = Envelope(fan_out.payload, fan_out.meta).for_tenants()
        self._options = JobOptions.for_definition(
            fan_out.definition, priority=fan_out.priority, delay_ms=quiet_ms(fan_out.definition)
        )
        self._spread_ms = spread_of(fan_out.definition) // dt.timedelta(milliseconds=1)
        self.at_a_time = max(1, min(CHUNK_CHILDREN, CHUNK_BYTES // self._envelopes.size))

    def of(self, number: int, tenant_id: str) -> NewJob:
        """The child of the tenant that is ``number`` in the list, from 0 on."""
        data, text = self._envelopes.encode(tenant_id)
        options = self._options
        if self._spread_ms and not options.delay_ms:
            # Evenly, and the same for the same list (P46).
            options = replace(options, delay_ms=self._spread_ms * number // self._count)
        definition = self._fan_out.definition
        rules = rules_for(definition, tenant_id)
        return NewJob(
            lane=definition.lane,
            name=definition.qualified_name,
            job_id=child_id(self._fan_out.wrapper_id, tenant_id),
            data=data,
            options=options,
            timestamp_ms=self._now_ms,
            text=text,
            # Over the cap a child waits for its turn: all tenants have theirs (design 4).
            rules=None if rules is None else replace(rules, parks_over_cap=True),
        )


def _portions(children: _Children, tenants: Sequence[str]) -> Iterator[list[NewJob]]:
    for first in range(0, len(tenants), children.at_a_time):
        some = tenants[first : first + children.at_a_time]
        yield [children.of(number, tenant) for number, tenant in enumerate(some, start=first)]


def _already_there(fan_out: FanOut, job_ids: Sequence[str]) -> set[str]:
    """Children that the queue holds, or that have run and are gone from it.

    The queue forgets jobs ``COMPLETED_AGE`` after their end, and a wrapper may be given back, put
    aside or retried by hand later than that. The history remembers them for longer (P41, P42).
    """
    lane = fan_out.definition.lane
    there = producer.known_ids(lane, job_ids)
    if fan_out.is_repeated:
        queued_at = fan_out.wrapper_queued_at
        there |= ended_children(
            lane,
            job_ids,
            queued_at - _CLOCKS_DIFFER,
            wrapper_id=fan_out.wrapper_id,
            queued_at=queued_at,
        )
    return there
