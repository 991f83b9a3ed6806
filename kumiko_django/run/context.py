"""``ctx``: what a handler is given besides its payload."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

from kumiko_django.broker.envelope import TriggerEvent
from kumiko_django.definitions.registry import Registry
from kumiko_django.dispatching import dispatcher
from kumiko_django.dispatching.results import Dispatched
from kumiko_django.facets.db import ReachesDatabase
from kumiko_django.facets.protocols import Config, Derivatives, Files, Notify, Secrets
from kumiko_django.facets.provided import Facets
from kumiko_django.handlers.in_run import RunIdentity
from kumiko_django.handlers.of_context import CallsHandlers
from kumiko_django.handlers.principals import Principal, system_principal
from kumiko_django.observability.chosen import get_meter
from kumiko_django.observability.meter import Metrics
from kumiko_django.run.deferral import Deferral, deferral
from kumiko_django.run.logbook import RunLog, readable
from kumiko_django.tenancy.escape import RunHatches
from kumiko_django.types.cancellation import Cancellation
from kumiko_django.types.jsonable import JSON


@dataclass(frozen=True, slots=True)
class TriggeredBy:
    """The user who caused the job, in the tenant that it runs for (B077)."""

    id: str
    tenant_id: str


class Notes:
    """What a handler says about its run while it lives: how far it is, and about what."""

    def __init__(self, on_progress: Callable[[JSON], None]) -> None:
        self._on_progress = on_progress
        self.progress: JSON = None
        self.object_ref = ""
        self.deferrals: list[Deferral] = []

    def set_progress(self, value: dict[str, Any]) -> None:
        """Note how far the run is; the latest value is stored at most twice a second."""
        self.progress = readable(value)
        self._on_progress(self.progress)


@dataclass(frozen=True)
class JobContext(CallsHandlers, ReachesDatabase):
    """Facts about the run and what its handler can do.

    Attributes:
        job_name: Qualified name of the job.
        job_id: The queue's id, the same for all attempts.
        run_id: Primary key of this run's ``JobRun``.
        attempt: 1 for the first.
        final_attempt: Whether a failure now is the last.
        tenant_id: The tenant that this run is for; ``SYSTEM`` for work of none.
        triggered_by: Who caused it, or None.
        correlation_id: Shared by everything that one request caused.
        request_id: Of this run alone (B135).
        log: The run's log.
        registry: All job definitions (B158).
        trigger_name: Name of the event that started the job, or None.
        trigger_event: That event, or None.
        fencing_token: A number that rises with every slot granted, of whatever key; None for jobs
            that need none. What an older one has written may be refused where it is stored (P15).
    """

    job_name: str
    job_id: str
    run_id: UUID
    attempt: int
    final_attempt: bool
    tenant_id: str
    triggered_by: TriggeredBy | None
    correlation_id: str
    request_id: str
    log: RunLog
    registry: Registry
    trigger_name: str | None
    trigger_event: TriggerEvent | None
    _notes: Notes
    _cancellation: Cancellation
    _facets: Facets
    _identity: RunIdentity
    _hatches: RunHatches
    _can_be_deferred: bool = True
    fencing_token: int | None = None

    @property
    def cancelled(self) -> bool:
        """Whether the run should stop: its lock is lost, its time is up, or its worker leaves.

        Nothing is stopped by it. A handler that works for long asks now and then, and returns.
        """
        return bool(self._cancellation)

    @property
    def files(self) -> Files:
        """The tenant's files. As the other facets, it is made on first use, once a run.

        Raises:
            FacetMissing: The settings bring no such facet.
        """
        return cast("Files", self._facets.get("files"))

    @property
    def derivatives(self) -> Derivatives:
        """Variants of the tenant's files; errors as :attr:`files`."""
        return cast("Derivatives", self._facets.get("derivatives"))

    @property
    def notify(self) -> Notify:
        """Tells people something; errors as :attr:`files`."""
        return cast("Notify", self._facets.get("notify"))

    @property
    def config(self) -> Config:
        """The tenant's settings; errors as :attr:`files`."""
        return cast("Config", self._facets.get("config"))

    @property
    def secrets(self) -> Secrets:
        """The tenant's secrets; errors as :attr:`files`."""
        return cast("Secrets", self._facets.get("secrets"))

    @property
    def tz(self) -> dt.tzinfo:
        """The tenant's time zone, which is the current one in the run; else Django's (B141)."""
        return self._facets.tz

    @property
    def system_user(self) -> Principal:
        """Whom the run acts as; who caused it is ``triggered_by``."""
        return system_principal(self.tenant_id)

    def metrics_for(self, /, **labels: str) -> Metrics:
        """Metrics of your own, with the label ``job``; they go nowhere where no ``METER`` is set.

        Args:
            labels: More labels that all of them have.
        """
        return Metrics(get_meter(), {**labels, "job": self.job_name})

    def defer(self, delay: float | dt.timedelta) -> Deferral:
        """Go on with this run later: ``return ctx.defer(60)``, or ``raise ctx.defer(60)``.

        The handler is then called again with the same payload. No attempt is used; the job may be
        deferred ``max_defers`` times. Called only, it does nothing (B195).

        Args:
            delay: A timedelta or seconds, above 0 and at most a year.

        Raises:
            ValueError: The delay is out of range.
            KumikoError: The job is no run of a queue (a boot gate).
        """
        made = deferral(self.job_name, delay, possible=self._can_be_deferred)
        self._notes.deferrals.append(made)
        return made

    def progress(
        self, done: float | None = None, total: float | None = None, message: str | None = None
    ) -> None:
        """Say how far the run is; shown in the history while it runs.

        Args:
            done: How much is done.
            total: How much there is.
            message: A few words.
        """
        given = {"done": done, "total": total, "message": message}
        self._notes.set_progress({key: value for key, value in given.items() if value is not None})

    def about(self, obj: Any) -> None:
        """Note what the run is about, so that operators find it by object.

        Args:
            obj: A model instance, or a text of your own.
        """
        meta = getattr(obj, "_meta", None)
        self._notes.object_ref = (
            str(obj) if meta is None else f"{meta.label_lower}:{getattr(obj, 'pk', '')}"
        )

    def dispatch(self, job: Any, payload: Any = None, **options: Any) -> Dispatched:
        """Queue a follow-up job; it inherits tenant, user and correlation (B168).

        Arguments and errors as :func:`kumiko_django.dispatch`. In an async handler use
        :meth:`adispatch`.
        """
        return dispatcher.dispatch(job, payload, **options)

    async def adispatch(self, job: Any, payload: Any = None, **options: Any) -> Dispatched:
        """Queue a follow-up job from an async handler."""
        return await dispatcher.adispatch(job, payload, **options)

    def dispatch_many(self, job: Any, payloads: Iterable[Any], **options: Any) -> list[Dispatched]:
        """Queue one follow-up job for each payload."""
        return dispatcher.dispatch_many(job, payloads, **options)

    async def adispatch_many(
        self, job: Any, payloads: Iterable[Any], **options: Any
    ) -> list[Dispatched]:
        """Queue one follow-up job for each payload from an async handler."""
        return await dispatcher.adispatch_many(job, payloads, **options)
