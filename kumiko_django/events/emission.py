"""``emit`` and ``aemit``: announce an event, and queue the jobs that it starts.

What is wrong with the call is raised before anything is sent. What is wrong with one of the jobs
(its schema, its tenant, a Redis that is away) does not stop the others (P66): it is in the answer,
in the log, and told by ``dispatch_failed``. With an ``event_id`` a repetition is harmless (P65).
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from django.core.exceptions import SynchronousOnlyOperation
from django.db.transaction import TransactionManagementError
from django.utils.asyncio import async_unsafe
from django.utils.connection import ConnectionDoesNotExist

from kumiko_django import signals
from kumiko_django.broker.producer import NewJob
from kumiko_django.definitions.job import JobDefinition
from kumiko_django.definitions.registry import registry
from kumiko_django.definitions.triggers import On
from kumiko_django.dispatching import dispatcher, observed
from kumiko_django.dispatching.request import Request, build, user_id_of
from kumiko_django.events.event import Event, EventId, Headers
from kumiko_django.exceptions import BrokerUnavailable, KumikoError, SettingsError
from kumiko_django.tenancy.resolution import check_tenant_of_event
from kumiko_django.types.arguments import AMBIENT, TenantArgument
from kumiko_django.types.ids import new_job_id
from kumiko_django.types.results import Dispatched

logger = logging.getLogger("kumiko_django.dispatch")

PATIENCE_SECONDS: Final = 1.0
"""What one event loses to a Redis that is away before its other jobs are given up untried."""
_OF_THE_CALL: Final = (
    SettingsError,
    SynchronousOnlyOperation,
    TransactionManagementError,
    ConnectionDoesNotExist,
)
"""Errors of sending that all jobs of an event meet alike: the caller's, not one job's."""


def emit(
    event: str,
    payload: Mapping[str, Any] | None = None,
    *,
    event_id: EventId = None,
    headers: Headers | None = None,
    tenant_id: TenantArgument = AMBIENT,
    triggered_by: Any = None,
    using: str | None = None,
) -> list[Dispatched]:
    """Announce an event: queue every job whose trigger is :class:`On` it and fits the payload.

    Args:
        event: Its name. That no job listens to it is no error.
        payload: A mapping of JSON values, which is the payload of each job.
        event_id: Makes a repetition the same event: each job is queued once for it.
        headers: Facts about the event, which are no payload; ``ctx.trigger_event`` has them.
        tenant_id: The tenant that it happened to; by default that of the ambient scope. Jobs of the
            system hear of it too, and run as such.
        triggered_by: The user (or user id) who caused it; by default the ambient user.
        using: Database whose transaction the jobs wait for; by default the default database.

    Returns:
        An answer for each job, in their order. One that could not be queued is ``failed``.

    Raises:
        PayloadError: The payload cannot travel.
        ScopeError: The tenant is unusable, or another than the scope's.
        ValueError: The name, ``event_id``, ``headers`` or ``triggered_by`` is wrong.
        SettingsError, TransactionManagementError, SynchronousOnlyOperation: As in ``dispatch``.
    """
    _refuse_on_loop()
    checked = Event.of(event, payload, event_id, headers)
    with observed.emitting(checked.name):
        return _emit(_matches(checked, tenant_id, triggered_by), using)


async def aemit(
    event: str,
    payload: Mapping[str, Any] | None = None,
    *,
    event_id: EventId = None,
    headers: Headers | None = None,
    tenant_id: TenantArgument = AMBIENT,
    triggered_by: Any = None,
    using: str | None = None,
) -> list[Dispatched]:
    """Announce an event from async code; arguments and errors as :func:`emit`."""
    checked = Event.of(event, payload, event_id, headers)
    with observed.emitting(checked.name):
        return await _aemit(_matches(checked, tenant_id, triggered_by), using)


def announce(event: Event, using: str) -> list[Dispatched]:
    """Emit an event that is checked already, in the ambient scope: for the rooms above."""
    with observed.emitting(event.name):
        return _emit(_matches(event, AMBIENT, None), using)


def _emit(matches: Sequence[_Match], using: str | None) -> list[Dispatched]:
    patience = _Patience()
    for match in matches:
        if match.problem is None:
            with match.isolated(), patience.sending():
                match.answers = dispatcher.send(match.definition, match.jobs, using)
        if match.problem is not None:
            signals.dispatch_failed.send_robust(**match.failed(match.problem))
    return [answer for match in matches for answer in match.answers]


async def _aemit(matches: Sequence[_Match], using: str | None) -> list[Dispatched]:
    patience = _Patience()
    for match in matches:
        if match.problem is None:
            with match.isolated(), patience.sending():
                match.answers = await dispatcher.asend(match.definition, match.jobs, using)
        if match.problem is not None:
            await signals.dispatch_failed.asend_robust(**match.failed(match.problem))
    return [answer for match in matches for answer in match.answers]


def has_listeners(event: str) -> bool:
    """Whether any job listens to an event of this name, whatever its payload."""
    return any(_listens(definition, event) for definition in registry.all())


def _listens(definition: JobDefinition, event: str) -> bool:
    return isinstance(definition.trigger, On) and event in definition.trigger.events


class _Match:
    """One job that an event starts: ready to be queued, or the problem that it has."""

    def __init__(
        self, definition: JobDefinition, event: Event, tenant: TenantArgument, triggered_by: Any
    ) -> None:
        self.definition = definition
        self.jobs: list[NewJob] = []
        self.answers: list[Dispatched] = []
        self.problem: Exception | None = None
        self._event = event
        self._job_id = new_job_id()
        self._tenant_id: object = None
        try:
            job = self._build(tenant, triggered_by)
        except Exception as error:  # noqa: BLE001  (a schema's own fault, say)
            self.problem = error
        else:
            self.jobs.append(job)
            self._job_id, self._tenant_id = job.job_id, job.data.get("_tenantId")

    def _build(self, tenant: TenantArgument, triggered_by: Any) -> NewJob:
        request = Request(
            # A job of the system listens to the events of every tenant, and belongs to none.
            tenant_id=AMBIENT if self.definition.tenant == "system" else tenant,
            triggered_by=triggered_by,
            trigger_name=self._event.name,
            trigger_event=self._event.source,
        )
        return build(self.definition, self._event.payload, request)

    @contextlib.contextmanager
    def isolated(self) -> Iterator[None]:
        """Around its sending: a problem of its own is noted, the others have their turn."""
        try:
            yield
        except _OF_THE_CALL:
            raise
        except Exception as error:  # noqa: BLE001  (whatever it is)
            self.problem = error

    def failed(self, error: Exception) -> dict[str, Any]:
        """Answer, and write to the log, that it could not be queued.

        Returns:
            The arguments of ``dispatch_failed``.
        """
        told = f"{type(error).__name__}: {error}"
        self.answers = [Dispatched("failed", self._job_id, told)]
        is_ours = isinstance(error, KumikoError)
        logger.error(
            "The event %s could not queue its job %s (%s): %s",
            self._event.name,
            self.definition.qualified_name,
            self._job_id,
            error,
            exc_info=None if is_ours else error,
        )
        observed.count_failed(self.definition.qualified_name)
        return {
            "sender": self.definition,
            "job_id": self._job_id,
            "tenant_id": self._tenant_id,
            "payload": self._event.encoded,
            "error": error if is_ours else KumikoError(told),
        }


def _matches(event: Event, tenant: TenantArgument, triggered_by: Any) -> list[_Match]:
    """The jobs that the event starts, in the order of their registration (B115)."""
    check_tenant_of_event(event.name, tenant)
    user_id_of(triggered_by, f"event {event.name}")
    registry.freeze()
    return [
        _Match(definition, event, tenant, triggered_by)
        for definition in registry.all()
        if isinstance(definition.trigger, On)
        and definition.trigger.matches(event.name, event.encoded)
    ]


class _Patience:
    """How long one event waits for a Redis that is away: not for every job anew."""

    def __init__(self) -> None:
        self._lost = 0.0
        self._failure: BrokerUnavailable | None = None

    @contextlib.contextmanager
    def sending(self) -> Iterator[None]:
        """Around a send. Raises at once what the sends before have met, once they took too long."""
        if self._failure is not None and self._lost >= PATIENCE_SECONDS:
            raise BrokerUnavailable(str(self._failure)) from self._failure
        began = time.monotonic()
        try:
            yield
        except BrokerUnavailable as error:
            self._failure = error
            self._lost += time.monotonic() - began
            raise


@async_unsafe("emit() would block the event loop - await aemit() instead.")
def _refuse_on_loop() -> None:
    """Refused whether or not a job listens: a listener that is added must not break the caller."""
