"""Runs of jobs for every tenant: the wrapper's, and those that it makes (B061-B071, P39-P47)."""

from __future__ import annotations

import contextlib
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import asdict, replace
from typing import Any, Final

from kumiko_django.conf import get_settings
from kumiko_django.definitions.fan_out import wrapped_name, wrapper_of
from kumiko_django.definitions.job import JobDefinition
from kumiko_django.definitions.registry import registry
from kumiko_django.dispatching.fan_out import Count, FanOut, add_children
from kumiko_django.history.recorder import Recorder
from kumiko_django.run.context import JobContext
from kumiko_django.run.failure import Refused
from kumiko_django.run.state import Run
from kumiko_django.run.threads import HandlerThreads
from kumiko_django.tenancy.directory import active_tenants, directory, no_tenants
from kumiko_django.types.ids import SYSTEM
from kumiko_django.types.moments import moment

TENANT_INACTIVE: Final = "the tenant is no longer active"
_ON_RECORD_SECONDS: Final = 1.0
"""A database that is away longer must not hold a fan-out up."""


def find_definition(job_name: str) -> JobDefinition:
    """The definition behind the name of a job in the queue; of a wrapper's name, the wrapper.

    Raises:
        UnknownJobError: There is none.
        Refused: It is a wrapper's, and cannot be run for every tenant here (B062, B063).
    """
    wrapped = wrapped_name(job_name)
    if wrapped is None:
        return registry.get(job_name)
    if not get_settings().tenancy_enabled:
        raise Refused(str(no_tenants(wrapped)))
    definition = registry.get(wrapped)
    if definition.tenant == "system":
        raise Refused(
            f"{wrapped} is a job of the system (tenant='system'); it cannot run for every tenant."
        )
    return wrapper_of(definition)


async def why_skipped(run: Run, threads: HandlerThreads) -> str:
    """Why a run need not take place; empty if it should.

    A tenant may have been closed since its job was made (P47).

    Raises:
        SettingsError, ScopeError: ``TENANTS`` cannot be asked; and whatever it raises.
    """
    if not run.known_definition.per_tenant or run.tenant_id == SYSTEM:
        return ""
    tenant_id, since = run.tenant_id, run.delivery.created_at_ms / 1000
    is_active = directory.known(tenant_id, since)
    if is_active is None:
        # In a thread: it is the host's code, and asks the database. For no tenant.
        is_active = await threads.run(
            lambda: directory.is_active(tenant_id, since), run.surroundings(SYSTEM)
        )
    return "" if is_active else TENANT_INACTIVE


class Work:
    """What the run of a wrapper does: add a child for each active tenant."""

    def __init__(self, definition: JobDefinition, run: Run, recorder: Recorder) -> None:
        self._definition = definition
        self._run = run
        self._recorder = recorder

    def __call__(self, ctx: JobContext) -> dict[str, Any]:
        """Do it; answers what the wrapper's run has as its result.

        Raises:
            BrokerUnavailable: Redis did not take all of them; the progress tells how many.
            SettingsError, ScopeError: ``TENANTS`` cannot be asked; and whatever it raises.
        """
        tenants = active_tenants()
        ctx.progress(done=0, total=len(tenants))
        self._be_on_record()
        fan_out = _fan_out(self._definition, self._run)
        count = add_children(fan_out, tenants, lambda count: _tell(ctx, count))
        return asdict(count)

    def _be_on_record(self) -> None:
        """Have the run in the history before its children name it, should the worker die now."""
        with contextlib.suppress(FutureTimeout):
            self._recorder.flush().result(_ON_RECORD_SECONDS)


def _tell(ctx: JobContext, count: Count) -> None:
    ctx.progress(done=count.done, total=count.planned)


def _fan_out(definition: JobDefinition, run: Run) -> FanOut:
    delivery = run.delivery
    # Another producer's wrapper says nothing about its children's priority; ours does, even where
    # it stores none.
    is_ours = isinstance(delivery.data, dict) and "_v" in delivery.data
    return FanOut(
        definition=definition,
        wrapper_id=delivery.job_id,
        wrapper_queued_at=moment(delivery.created_at_ms),
        payload=run.payload,
        meta=replace(
            run.meta,
            tenant_id=None,
            correlation_id=run.correlation_id,
            parent_run=run.run_id,
            trace=run.trace,
        ),
        priority=delivery.priority if is_ours else definition.priority,
        is_repeated=delivery.start > 1 or delivery.attempt > 1,
    )
