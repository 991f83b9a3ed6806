"""Boot jobs: queued once per data set, when a worker of their lane starts (B102-B107, B227)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Final

from django.db import connections

from kumiko_django.admission.rules import rules_for
from kumiko_django.broker import boot, producer
from kumiko_django.broker.door import Decision
from kumiko_django.broker.envelope import Envelope, Metadata
from kumiko_django.broker.keys import boot_id, child_id
from kumiko_django.broker.options import JobOptions
from kumiko_django.broker.producer import NewJob
from kumiko_django.definitions.concurrency import quiet_ms
from kumiko_django.definitions.job import JobDefinition
from kumiko_django.definitions.options import Lane
from kumiko_django.definitions.registry import registry
from kumiko_django.dispatching import skips
from kumiko_django.dispatching.request import queued_as
from kumiko_django.exceptions import BrokerUnavailable, DefinitionError
from kumiko_django.observability.chosen import current_trace
from kumiko_django.tenancy.directory import active_tenants
from kumiko_django.types.ids import SYSTEM

logger = logging.getLogger("kumiko_django.worker")

AWAY_SECONDS: Final = 0.5


class CannotReset(Exception):
    """There is nothing to forget now; the text says why."""


def boot_jobs(lane: Lane) -> list[JobDefinition]:
    """The boot jobs of a lane, in the order of registration."""
    return [one for one in registry.all() if one.run_on_boot and one.lane == lane]


def ids_of(definition: JobDefinition) -> tuple[str, ...]:
    """The id of a boot job, then those that it had under former names."""
    names = (definition.qualified_name, *definition.qualified_aliases)
    return tuple(boot_id(name) for name in names)


async def enqueue_boot_jobs(lane: Lane, stop: asyncio.Event) -> None:
    """Queue the boot jobs of a lane that this data set has not had yet.

    A Redis that is away for a moment is waited for, as everywhere in a worker; all of it may be
    done again.

    Args:
        lane: The lane.
        stop: Ends the waiting.
    """
    told = False
    while not stop.is_set():
        try:
            await _enqueue(lane)
            return
        except BrokerUnavailable as error:
            if not told:
                logger.warning("The boot jobs of lane %s wait: %s", lane, error)
                told = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), AWAY_SECONDS)


async def _enqueue(lane: Lane) -> None:
    """Queue what has no mark.

    The mark is set after the add (B105): a process that dies in between leaves a job without a
    mark, and the next start adds it again under the same id, which does nothing. So do two
    processes that start at the same time (B227). One that the door keeps out, because of the same
    work that is there already, has had its turn: it is on record, and marked.
    """
    definitions = boot_jobs(lane)
    for definition in definitions:
        job_ids = ids_of(definition)
        if await boot.marked(lane, job_ids):
            continue
        await _pass_the_door(definition)
        await boot.mark(lane, job_ids[0])
    known = [job_id for definition in definitions for job_id in ids_of(definition)]
    for job_id in await boot.tidy(lane, known):
        logger.info("dropped the mark of %s; there has been no such boot job for long", job_id)


async def _pass_the_door(definition: JobDefinition) -> None:
    job = boot_job(definition)
    decision = await producer.aadd(job)
    if decision.is_accepted:
        logger.info("queued the boot job %s", definition.qualified_name)
        return
    logger.warning("the boot job %s is not queued: %s", definition.qualified_name, decision.reason)
    await asyncio.to_thread(_put_on_record, definition, job, decision)


def _put_on_record(definition: JobDefinition, job: NewJob, decision: Decision) -> None:
    try:
        skips.record(definition, [job], [decision])
    finally:
        connections.close_all()


def boot_job(definition: JobDefinition) -> NewJob:
    """The job that is queued: no payload, no user, for no tenant (B107); or its wrapper (B103)."""
    queued = queued_as(definition)
    return NewJob.of(
        Envelope({}, Metadata(tenant_id=SYSTEM, trace=current_trace())),
        lane=queued.lane,
        name=queued.qualified_name,
        job_id=boot_id(definition.qualified_name),
        options=JobOptions.for_definition(queued, delay_ms=quiet_ms(queued)),
        timestamp_ms=time.time_ns() // 1_000_000,
        # Those of a job for every tenant are for its children.
        rules=rules_for(queued, SYSTEM),
    )


def reset_boot_job(name: str) -> str:
    """Have a boot job queued again by the next worker of its lane that starts.

    Args:
        name: Its qualified name, or a former one.

    Returns:
        A sentence for the operator.

    Raises:
        UnknownJobError: There is no such job.
        DefinitionError: It is no boot job.
        CannotReset: It waits or runs at this moment.
        SettingsError, ScopeError: It is for every tenant, and ``TENANTS`` cannot be asked.
        BrokerUnavailable: Redis does not answer.
    """
    definition = registry.get(name)
    called = definition.qualified_name
    if not definition.run_on_boot:
        boots = ", ".join(one.qualified_name for one in registry.all() if one.run_on_boot)
        raise DefinitionError(
            f"{called} is no boot job (run_on_boot=True). Boot jobs are: {boots or 'none'}."
        )
    try:
        was_marked = boot.reset(definition.lane, _ids_with_children(definition))
    except boot.StillQueued:
        jobs = ", or one of its jobs for the tenants," if definition.per_tenant else ""
        raise CannotReset(
            f"{called}{jobs} is waiting or running at this moment. Try again when it has ended."
        ) from None
    done = "is forgotten" if was_marked else "had not been queued yet"
    return f"{called} {done}; the next worker of lane {definition.lane} that starts queues it."


def _ids_with_children(definition: JobDefinition) -> tuple[str, ...]:
    """What has to be forgotten: a child that the queue still knows would not be added again."""
    ids = ids_of(definition)
    if not definition.per_tenant:
        return ids
    tenants = active_tenants()
    return (*ids, *(child_id(wrapper_id, tenant) for wrapper_id in ids for tenant in tenants))
