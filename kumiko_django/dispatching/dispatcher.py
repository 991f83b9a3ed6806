"""``dispatch`` and its siblings.

Inside a transaction nothing reaches Redis before the commit, and a rollback leaves nothing: the add
waits for ``on_commit`` of the database (P64, user-needs 1-4). Everything goes through :func:`_send`
and :func:`_asend`, whatever the entry point.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any

from asgiref.sync import sync_to_async
from django.db import DEFAULT_DB_ALIAS, connections
from django.utils.asyncio import async_unsafe

from kumiko_django.broker import producer
from kumiko_django.broker.producer import NewJob
from kumiko_django.definitions.options import Priority
from kumiko_django.dispatching.after_commit import send_after_commit
from kumiko_django.dispatching.request import Delay, Request, build, find_definition
from kumiko_django.dispatching.results import Dispatched
from kumiko_django.tenancy.resolution import AMBIENT, TenantArgument

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
        immediate: Send now even inside a transaction; it may run before the commit, and does run
            after a rollback.

    Raises:
        UnknownJobError: No such job.
        PayloadError: The payload cannot travel, does not fit the schema, or is too large.
        TenantRequired, ScopeError: The tenant is missing or wrong.
        BrokerUnavailable: Redis did not take the job within three seconds. Never after a commit:
            then it is logged, and ``dispatch_failed`` is sent.
        SynchronousOnlyOperation: Called from async code; use :func:`adispatch`.
    """
    request = Request(tenant_id, triggered_by, priority, delay, run_at)
    jobs = build(find_definition(job), [payload], request)
    return _send(jobs, using, immediate)[0]


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
    return _send(build(find_definition(job), list(payloads), request), using, immediate)


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
    jobs = build(find_definition(job), [payload], request)
    return (await _asend(jobs, using, immediate))[0]


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
    return await _asend(build(find_definition(job), list(payloads), request), using, immediate)


@async_unsafe(_FROM_ASYNC)
def _send(jobs: Sequence[NewJob], using: str | None, immediate: bool) -> list[Dispatched]:
    alias = using or DEFAULT_DB_ALIAS
    if not immediate and connections[alias].in_atomic_block:
        return _later(jobs, alias)
    if len(jobs) == 1:
        producer.add(jobs[0])
    elif jobs:
        producer.add_many(jobs)
    return [Dispatched("queued", job.job_id) for job in jobs]


async def _asend(jobs: Sequence[NewJob], using: str | None, immediate: bool) -> list[Dispatched]:
    alias = using or DEFAULT_DB_ALIAS
    # Transactions live in the thread that async code shares for sync work; ask there.
    if not immediate and await sync_to_async(_is_in_transaction)(alias):
        return await sync_to_async(_later)(jobs, alias)
    if len(jobs) == 1:
        await producer.aadd(jobs[0])
    elif jobs:
        await producer.aadd_many(jobs)
    return [Dispatched("queued", job.job_id) for job in jobs]


def _is_in_transaction(alias: str) -> bool:
    return connections[alias].in_atomic_block


def _later(jobs: Sequence[NewJob], alias: str) -> list[Dispatched]:
    send_after_commit(jobs, alias)
    return [Dispatched("queued", job.job_id, "after-commit") for job in jobs]
