"""``dispatch`` and its siblings.

Inside a transaction nothing reaches Redis before the commit, and a rollback leaves nothing: the add
waits for ``on_commit`` of the database (P64, user-needs 1-4). Everything goes through
:func:`_left_to_commit`, whatever the entry point.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import TransactionManagementError
from django.utils.asyncio import async_unsafe

from kumiko_django.broker import producer
from kumiko_django.broker.door import Decision
from kumiko_django.broker.producer import NewJob
from kumiko_django.definitions.job import JobDefinition
from kumiko_django.definitions.options import Priority
from kumiko_django.dispatching import observed, skips
from kumiko_django.dispatching.after_commit import send_after_commit
from kumiko_django.dispatching.asking import sync_code_has_run
from kumiko_django.dispatching.request import Request, build, build_each, find_definition
from kumiko_django.tenancy.databases import awaited_database
from kumiko_django.types.arguments import AMBIENT, Delay, TenantArgument
from kumiko_django.types.results import Dispatched

_BREATHER = 250
"""Payloads that are encoded at a stretch; then the loop's other tasks have their turn."""
_FROM_ASYNC = (
    "dispatch() would block the event loop - await adispatch() (or adispatch_many()) instead."
)


def dispatch(
    job: Any,
    payload: Any = None,
    *,
    tenant_id: TenantArgument = AMBIENT,
    triggered_by: Any = None,
    priority: Priority | None = None,
    delay: Delay = None,
    run_at: dt.datetime | None = None,
    using: str | None = None,
    immediate: bool = False,
) -> Dispatched:
    """Queue a job.

    Args:
        job: A job function, its qualified name or an alias, or a definition.
        payload: A mapping of JSON values (dates, decimals, UUIDs and enums are encoded), or what
            the job's schema takes; nothing means an empty one (B049).
        tenant_id: The tenant to run for; by default that of the ambient scope.
        triggered_by: The user (or user id) who caused this; by default the ambient user.
        priority: ``high``, ``normal``, ``low`` or 1 to 2,097,152; by default the definition's.
        delay: Seconds or a timedelta until the job is due.
        run_at: An aware datetime at which it is due.
        using: Database whose transaction the job waits for; by default the default database.
        immediate: Send now, also inside a transaction; then it runs even after a rollback.

    Raises:
        UnknownJobError: No such job.
        PayloadError: The payload cannot travel, does not fit the schema, or is too large.
        TenantRequired, ScopeError, SettingsError: Tenant or ``TENANTS`` are missing or wrong.
        BrokerUnavailable: Redis did not take the job within three seconds. Never after a commit:
            then it is logged, and ``dispatch_failed`` is sent.
        ValueError: ``triggered_by``, ``priority``, ``delay`` or ``run_at`` is wrong.
        TransactionManagementError: Autocommit is off; Django tells nobody of such commits.
        SynchronousOnlyOperation: Called from async code; use :func:`adispatch`.
    """
    request = Request(tenant_id, triggered_by, priority, delay, run_at)
    definition = find_definition(job)
    with observed.dispatching(definition):
        return _send(definition, [build(definition, payload, request)], using, immediate)[0]


def dispatch_many(
    job: Any,
    payloads: Iterable[Any],
    *,
    tenant_id: TenantArgument = AMBIENT,
    triggered_by: Any = None,
    priority: Priority | None = None,
    delay: Delay = None,
    run_at: dt.datetime | None = None,
    using: str | None = None,
    immediate: bool = False,
) -> list[Dispatched]:
    """Queue one job for each payload, in their order; arguments and errors as :func:`dispatch`.

    All payloads are checked before the first is sent.
    """
    request = Request(tenant_id, triggered_by, priority, delay, run_at)
    definition = find_definition(job)
    with observed.dispatching(definition):
        jobs = list(build_each(definition, payloads, request))
        return _send(definition, jobs, using, immediate)


async def adispatch(
    job: Any,
    payload: Any = None,
    *,
    tenant_id: TenantArgument = AMBIENT,
    triggered_by: Any = None,
    priority: Priority | None = None,
    delay: Delay = None,
    run_at: dt.datetime | None = None,
    using: str | None = None,
    immediate: bool = False,
) -> Dispatched:
    """Queue a job from async code; arguments and errors as :func:`dispatch`."""
    request = Request(tenant_id, triggered_by, priority, delay, run_at)
    definition = find_definition(job)
    with observed.dispatching(definition):
        jobs = [build(definition, payload, request)]
        return (await _asend(definition, jobs, using, immediate))[0]


async def adispatch_many(
    job: Any,
    payloads: Iterable[Any],
    *,
    tenant_id: TenantArgument = AMBIENT,
    triggered_by: Any = None,
    priority: Priority | None = None,
    delay: Delay = None,
    run_at: dt.datetime | None = None,
    using: str | None = None,
    immediate: bool = False,
) -> list[Dispatched]:
    """Queue one job for each payload from async code; as :func:`dispatch_many`."""
    request = Request(tenant_id, triggered_by, priority, delay, run_at)
    definition = find_definition(job)
    jobs: list[NewJob] = []
    with observed.dispatching(definition):
        for job_of_one in build_each(definition, payloads, request):
            jobs.append(job_of_one)
            if len(jobs) % _BREATHER == 0:
                await asyncio.sleep(0)
        return await _asend(definition, jobs, using, immediate)


def send(definition: JobDefinition, jobs: Sequence[NewJob], using: str | None) -> list[Dispatched]:
    """Queue jobs that are built already, as :func:`dispatch` does: for the rooms above.

    What the door does not let in goes on record: whoever has caused an event seldom looks.

    Raises:
        BrokerUnavailable, TransactionManagementError: As in :func:`dispatch`.
    """
    return _send(definition, jobs, using, immediate=False, seen=False)


async def asend(
    definition: JobDefinition, jobs: Sequence[NewJob], using: str | None
) -> list[Dispatched]:
    """Do the same from async code."""
    return await _asend(definition, jobs, using, immediate=False, seen=False)


@async_unsafe(_FROM_ASYNC)
def _send(
    definition: JobDefinition,
    jobs: Sequence[NewJob],
    using: str | None,
    immediate: bool,
    *,
    seen: bool = True,
) -> list[Dispatched]:
    if not immediate and _left_to_commit(definition, jobs, using):
        return _left(jobs)
    decisions = [producer.add(jobs[0])] if len(jobs) == 1 else producer.add_many(jobs)
    observed.count(jobs, decisions)
    (skips.report if seen else skips.record)(definition, jobs, decisions)
    return _answers(decisions)


async def _asend(
    definition: JobDefinition,
    jobs: Sequence[NewJob],
    using: str | None,
    immediate: bool,
    *,
    seen: bool = True,
) -> list[Dispatched]:
    if not immediate and await _aleft_to_commit(definition, jobs, using):
        return _left(jobs)
    if len(jobs) == 1:
        decisions = [await producer.aadd(jobs[0])]
    else:
        decisions = await producer.aadd_many(jobs)
    observed.count(jobs, decisions)
    await (skips.areport if seen else skips.arecord)(definition, jobs, decisions)
    return _answers(decisions)


def _answers(decisions: Sequence[Decision]) -> list[Dispatched]:
    return [Dispatched(made.status, made.job_id, made.reason) for made in decisions]


def _left(jobs: Sequence[NewJob]) -> list[Dispatched]:
    return [Dispatched("queued", job.job_id, "after-commit") for job in jobs]


def _left_to_commit(definition: JobDefinition, jobs: Sequence[NewJob], using: str | None) -> bool:
    """Whether a transaction is open, to whose commit the jobs are left."""
    alias = using or awaited_database()
    connection = connections[alias]
    if connection.in_atomic_block:
        if jobs:
            send_after_commit(definition, jobs, alias)
        return True
    _refuse_manual_transaction(connection)
    return False


async def _aleft_to_commit(
    definition: JobDefinition, jobs: Sequence[NewJob], using: str | None
) -> bool:
    if sync_code_has_run():
        return await sync_to_async(_left_to_commit)(definition, jobs, using)
    return _left_to_commit(definition, jobs, using)


def _refuse_manual_transaction(connection: BaseDatabaseWrapper) -> None:
    # Asked without connecting: a dispatch needs no database.
    is_open = connection.connection is not None
    if connection.autocommit if is_open else connection.settings_dict["AUTOCOMMIT"]:
        return
    raise TransactionManagementError(
        f"Autocommit is off for the database {connection.alias!r}, and Django tells nobody when "
        "such a transaction commits, so the dispatch cannot wait for it. Dispatch inside "
        "transaction.atomic() with autocommit on, or give immediate=True to send it now."
    )
