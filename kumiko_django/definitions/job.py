"""The definition of one job: immutable, complete, and wrong nowhere or not made at all (P10)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

from kumiko_django.definitions import concurrency as concurrency_options
from kumiko_django.definitions import names
from kumiko_django.definitions.aliases import check_aliases
from kumiko_django.definitions.boot import BootGate, check_boot
from kumiko_django.definitions.concurrency import Concurrency, ConcurrencyScope, Window
from kumiko_django.definitions.explained import explained_class
from kumiko_django.definitions.grants import Grants, check_escape_hatches
from kumiko_django.definitions.handler import check_handler, innermost, place, runs_on_loop
from kumiko_django.definitions.options import (
    DEFAULT_BACKOFF,
    DEFAULT_MAX_DEFERS,
    LANES,
    Backoff,
    Duration,
    Lane,
    Priority,
    check_max_defers,
    check_per_tenant,
    check_priority,
    check_timeout,
)
from kumiko_django.definitions.personal import check_personal
from kumiko_django.definitions.scheduling import (
    DEFAULT_CATCH_UP,
    CatchUp,
    check_schedule,
    default_concurrency,
)
from kumiko_django.definitions.schema import PayloadSchema
from kumiko_django.definitions.triggers import Cron, Every, Manual, On, Trigger
from kumiko_django.definitions.visible import VisibleFailure, VisibleRun, check_visible
from kumiko_django.exceptions import DefinitionError

Handler: TypeAlias = Callable[..., Any]
TenantRule: TypeAlias = Literal["required", "system"]
TENANT_RULES: tuple[TenantRule, ...] = ("required", "system")
MAX_RETRIES: Final = 100_000
"""Far beyond any use, and within what every database and queue counts."""


@explained_class
@dataclass(frozen=True, eq=False)
class JobDefinition:
    """What a job is called, what it runs, and how.

    Attributes:
        handler: ``def`` or ``async def`` taking ``(payload, ctx)``.
        name: Short name in kebab-case; by default the handler's own name.
        app_label: The app that the job belongs to; by default the app whose package has the
            handler.
        trigger: What starts the job.
        lane: Which fleet of processes runs it: ``worker`` or ``api``.
        tenant: ``required``: runs for one tenant; ``system``: for none.
        per_tenant: A dispatch without a tenant makes one job for each active tenant.
        spread: Seconds or a timedelta over which these are spread evenly; None for all at once.
        retries: How often a failed run is tried again; None and 0 mean once and no more.
        backoff: Pause between attempts; with retries and none given, one second (P37).
        timeout: A timedelta or seconds after which an attempt is stopped and fails.
        max_defers: How often a job may be deferred with ``ctx.defer()``, over all attempts.
        priority: ``high``, ``normal``, ``low`` or 1 to 2,097,152; a dispatch may override it.
        concurrency: What becomes of a job while another is pending: ``parallel`` (nothing),
            ``skip``, ``replace``, ``debounce``, ``throttle`` or ``sequential``. None: ``skip``
            where a schedule starts it, else ``parallel``.
        concurrency_scope: Whether others are those of the same ``tenant``, or all (``global``).
        debounce: Quiet time after which the last of several dispatches runs; seconds or timedelta.
        max_wait: How long a debounced job waits at most, counted from the first of them.
        throttle: Time in which only the first of several dispatches is accepted.
        max_per_tenant: How many jobs of a tenant may be pending or running.
        catch_up: What becomes of scheduled occurrences that were missed while nothing ran:
            ``one`` run for all, ``none``, or ``all``; None means ``one`` (P53).
        schema: A pydantic model, dataclass or TypedDict that payloads must fit.
        aliases: Names under which the job was known before; jobs queued under them still run.
        run_on_boot: Queued once per data set, when a worker of its lane starts (B104).
        boot_gate: Run by every worker of its lane that starts, before it consumes anything; with
            ``one-at-a-time`` by one of them after the other (P58, P60).
        accepts_personal_data: Why the job may write personal fields also where an anonymous request
            has begun its chain of work (B173).
        subject_fields: Fields of the payload that say whose personal data a run holds, for
            ``erase_subject``; ``"customer.id"`` is a field within another.
        tenant_visible_failure: What the tenant is told of a final failure, and of which subject.
        tenant_visible_run: The tenant sees the latest run of each subject.
        escape_hatches: What the job may do that others may not, by grant, with the reason why.
        description: A sentence for operators; by default the first line of the handler's docstring.

    Raises:
        DefinitionError: A value or combination is wrong; the message names it and the fix.
    """

    handler: Handler
    name: str = ""
    app_label: str | None = None
    trigger: Trigger = field(default_factory=Manual)
    lane: Lane = "worker"
    tenant: TenantRule = "required"
    per_tenant: bool = False
    spread: Duration | None = None
    retries: int | None = None
    backoff: Backoff | None = None
    timeout: Duration | None = None
    max_defers: int = DEFAULT_MAX_DEFERS
    priority: Priority = "normal"
    concurrency: Concurrency | None = None
    concurrency_scope: ConcurrencyScope = "tenant"
    debounce: Window | None = None
    max_wait: Window | None = None
    throttle: Window | None = None
    max_per_tenant: int | None = None
    catch_up: CatchUp | None = None
    schema: Any = None
    aliases: Sequence[str] = ()
    run_on_boot: bool = False
    boot_gate: BootGate = False
    accepts_personal_data: str | None = None
    subject_fields: Sequence[str] = ()
    tenant_visible_failure: VisibleFailure | None = None
    tenant_visible_run: VisibleRun | None = None
    escape_hatches: Mapping[str, str] = field(default_factory=Grants)
    description: str = ""
    payload_schema: PayloadSchema | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        where = f"job {self._where()}"
        check_handler(self.handler, where)
        self._set("name", self._short_name(where))
        if self.app_label is not None:
            self._qualify(self.app_label)
        self._check_choices(where)
        self._check_retries(where)
        if self.concurrency is None:
            self._set("concurrency", default_concurrency(self.trigger, self.catch_up))
        concurrency_options.check(self, where)
        if self.schema is not None:
            self._set("payload_schema", PayloadSchema(self.schema, where))
        check_schedule(self, where)
        check_per_tenant(self.per_tenant, self.spread, self.tenant, where)
        check_timeout(self.timeout, where)
        check_max_defers(self.max_defers, where)
        self._set("aliases", check_aliases(self.aliases, where))
        self._set("escape_hatches", check_escape_hatches(self.escape_hatches, where))
        reason, subject_fields = check_personal(self, where)
        self._set("accepts_personal_data", reason)
        self._set("subject_fields", subject_fields)
        check_boot(self, where)
        check_visible(self, where)
        if not self.description:
            self._set("description", _first_doc_line(self.handler))

    def __copy__(self) -> JobDefinition:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> JobDefinition:
        # It cannot change, and the registry knows it by identity.
        return self

    @cached_property
    def is_async(self) -> bool:
        """Whether the handler runs on the event loop instead of in a thread."""
        return runs_on_loop(self.handler)

    @property
    def attempts(self) -> int:
        """How many runs a job gets at most (B079)."""
        return (self.retries or 0) + 1

    @property
    def effective_backoff(self) -> Backoff:
        """The backoff that applies: the given one, else the default of one second (P37)."""
        return self.backoff or DEFAULT_BACKOFF

    @property
    def effective_catch_up(self) -> CatchUp:
        """What becomes of missed occurrences: the given rule, else one run for all (P53)."""
        return self.catch_up or DEFAULT_CATCH_UP

    @cached_property
    def timeout_seconds(self) -> float | None:
        """``timeout`` in seconds; None for none."""
        return check_timeout(self.timeout, "timeout")

    @cached_property
    def module(self) -> str:
        """Dotted module of the handler, for messages and operators."""
        return place(self.handler)[0]

    @cached_property
    def qualified_name(self) -> str:
        """``<app-label>:job:<name>``: the job's name in the queue, the history and messages.

        Raises:
            DefinitionError: The app is not known yet (the definition is not registered).
        """
        if self.app_label is None:
            raise DefinitionError(
                f"job {self._where()} belongs to no app yet. Register it "
                "(registry.register(...)) or give app_label=."
            )
        return self._qualify(self.app_label)

    @cached_property
    def qualified_aliases(self) -> tuple[str, ...]:
        """The aliases with their app; a short alias belongs to this job's app."""
        if not self.aliases:
            return ()
        app = self.qualified_name.split(":", 1)[0]
        return tuple(
            alias if names.is_qualified(alias) else f"{app}:job:{alias}" for alias in self.aliases
        )

    def assign_app(self, label: str) -> None:
        """Fill in the app of a definition that was made without one. The registry does this.

        Raises:
            DefinitionError: The definition has an app already, or the label has no kebab-case form.
        """
        if self.app_label is not None:
            raise DefinitionError(f"job {self._where()} belongs to the app {self.app_label!r}.")
        self._qualify(label)
        self._set("app_label", label)

    def _qualify(self, label: object) -> str:
        # A wrapper's name is longer, and must fit where names are kept.
        longest = names.MAX_NAME_LENGTH - (names.WRAPPER_ROOM if self.per_tenant else 0)
        return names.qualify(label, self.name, f"job {self._where()}", longest)

    def _where(self) -> str:
        return ".".join(place(self.handler))

    def _short_name(self, where: str) -> str:
        if self.name != "":
            return names.check_short_name(self.name, where)
        # A partial borrows its function's name for messages, not for the queue: two partials of
        # one function would be one job.
        return names.name_after(getattr(self.handler, "__name__", ""), where)

    def _set(self, attribute: str, value: object) -> None:
        object.__setattr__(self, attribute, value)

    def _check_choices(self, where: str) -> None:
        for option, value, allowed in (
            ("lane", self.lane, LANES),
            ("tenant", self.tenant, TENANT_RULES),
        ):
            if value not in allowed:
                raise DefinitionError(
                    f"{where}: {option}={value!r} is unknown; use "
                    f"{' or '.join(map(repr, allowed))}."
                )
        if not isinstance(self.trigger, Manual | Cron | Every | On):
            raise DefinitionError(
                f"{where}: trigger must be Manual(), Cron(pattern), Every(interval) or "
                f"On('event'), not {self.trigger!r}."
            )
        if not isinstance(self.description, str):
            raise DefinitionError(f"{where}: description must be text, not {self.description!r}.")
        try:
            check_priority(self.priority, where)
        except ValueError as error:
            raise DefinitionError(str(error)) from None

    def _check_retries(self, where: str) -> None:
        retries = self.retries
        if retries is not None and (
            isinstance(retries, bool)
            or not isinstance(retries, int)
            or not 0 <= retries <= MAX_RETRIES
        ):
            raise DefinitionError(
                f"{where}: retries must be a whole number from 0 to {MAX_RETRIES:,}, "
                f"not {retries!r}."
            )
        if self.backoff is None:
            return
        if not isinstance(self.backoff, Backoff):
            raise DefinitionError(
                f"{where}: backoff must be Backoff.fixed(seconds) or "
                f"Backoff.exponential(seconds), not {self.backoff!r}."
            )
        if not retries:
            raise DefinitionError(
                f"{where}: backoff= has no effect without retries=. Add retries= or drop it."
            )


def _first_doc_line(handler: Handler) -> str:
    return (inspect.getdoc(innermost(handler)) or "").strip().split("\n", 1)[0]
