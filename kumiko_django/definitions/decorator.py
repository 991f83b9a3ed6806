"""``@job``: turn a function into a registered job and leave it callable as it was."""

from __future__ import annotations

import datetime as dt
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, Protocol, TypeVar, cast, overload

from asgiref.sync import markcoroutinefunction

from kumiko_django.definitions.boot import BootGate
from kumiko_django.definitions.concurrency import Concurrency, ConcurrencyScope, Window
from kumiko_django.definitions.explained import unknown_option
from kumiko_django.definitions.grants import Grant
from kumiko_django.definitions.job import JobDefinition, TenantRule
from kumiko_django.definitions.options import Backoff, Duration, Lane, Priority
from kumiko_django.definitions.registry import registry
from kumiko_django.definitions.scheduling import CatchUp
from kumiko_django.definitions.triggers import Trigger
from kumiko_django.definitions.visible import VisibleFailure, VisibleRun
from kumiko_django.exceptions import DefinitionError, KumikoError
from kumiko_django.types.arguments import AMBIENT, Delay, TenantArgument
from kumiko_django.types.results import Dispatched

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Job(Protocol[P, R_co]):
    """A job function: what it was before, and four ways to dispatch it."""

    __name__: str
    __qualname__: str
    definition: JobDefinition

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the plain function: no queue, no history."""
        ...

    def dispatch(
        self,
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
        """Queue this job; see :func:`kumiko_django.dispatch`."""
        ...

    async def adispatch(
        self,
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
        """Queue this job from async code; see :func:`kumiko_django.adispatch`."""
        ...

    def dispatch_many(
        self,
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
        """Queue this job once for each payload; see :func:`kumiko_django.dispatch_many`."""
        ...

    async def adispatch_many(
        self,
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
        """Do the same from async code; see :func:`kumiko_django.adispatch_many`."""
        ...


class Dispatcher(Protocol):
    """What a job's own dispatch methods call; the dispatch room plugs itself in here."""

    def dispatch(self, job: Any, *args: Any, **kwargs: Any) -> Dispatched:
        """See ``kumiko_django.dispatch``."""

    async def adispatch(self, job: Any, *args: Any, **kwargs: Any) -> Dispatched:
        """See ``kumiko_django.adispatch``."""

    def dispatch_many(self, job: Any, *args: Any, **kwargs: Any) -> list[Dispatched]:
        """See ``kumiko_django.dispatch_many``."""

    async def adispatch_many(self, job: Any, *args: Any, **kwargs: Any) -> list[Dispatched]:
        """See ``kumiko_django.adispatch_many``."""


class _Port:
    """Where the dispatch room, which is above this one, plugs itself in."""

    dispatcher: Dispatcher | None = None

    def get(self) -> Dispatcher:
        if self.dispatcher is None:
            raise KumikoError(
                "Jobs cannot be dispatched before Django is set up. Is 'kumiko_django' in "
                "INSTALLED_APPS, and has django.setup() run?"
            )
        return self.dispatcher


dispatcher_port = _Port()


class _Method:
    """One of the dispatch methods of a job function."""

    def __init__(self, name: str, definition: JobDefinition) -> None:
        self._name = name
        self._definition = definition
        if name.startswith("a"):
            markcoroutinefunction(self)  # so that async_to_sync and frameworks know

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(dispatcher_port.get(), self._name)(self._definition, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<{self._name} of {self._definition.qualified_name}>"


_METHODS = ("dispatch", "adispatch", "dispatch_many", "adispatch_many")


@overload
def job(function: Callable[P, R], /) -> Job[P, R]: ...
@overload
def job(
    *,
    name: str = ...,
    app_label: str | None = ...,
    trigger: Trigger = ...,
    lane: Lane = ...,
    tenant: TenantRule = ...,
    per_tenant: bool = ...,
    spread: Duration | None = ...,
    retries: int | None = ...,
    backoff: Backoff | None = ...,
    timeout: Duration | None = ...,
    max_defers: int = ...,
    priority: Priority = ...,
    concurrency: Concurrency | None = ...,
    concurrency_scope: ConcurrencyScope = ...,
    debounce: Window | None = ...,
    max_wait: Window | None = ...,
    throttle: Window | None = ...,
    max_per_tenant: int | None = ...,
    catch_up: CatchUp | None = ...,
    schema: Any = ...,
    aliases: Iterable[str] = ...,
    run_on_boot: bool = ...,
    boot_gate: BootGate = ...,
    accepts_personal_data: str | None = ...,
    subject_fields: Iterable[str] = ...,
    tenant_visible_failure: VisibleFailure | None = ...,
    tenant_visible_run: VisibleRun | None = ...,
    escape_hatches: Mapping[Grant, str] = ...,
    description: str = ...,
) -> Callable[[Callable[P, R]], Job[P, R]]: ...
def job(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Register a function as a job.

    Use it plain (``@job``) or with the options of
    :class:`~kumiko_django.definitions.job.JobDefinition`. The function stays callable as it was and
    gains ``dispatch``, ``adispatch``, ``dispatch_many``, ``adispatch_many`` and ``definition``.

    Raises:
        DefinitionError: An option is unknown or wrong, or the name is taken.
    """
    _refuse_unknown(options)

    def decorate(target: Callable[..., Any]) -> Any:
        _refuse_no_function(target)
        definition = registry.register(JobDefinition(handler=target, **options))
        decorated = cast("Any", target)
        decorated.definition = definition
        for method in _METHODS:
            setattr(decorated, method, _Method(method, definition))
        return decorated

    return decorate if function is None else decorate(function)


def _refuse_no_function(target: Any) -> None:
    """Only what keeps the attributes that are set on it, and is not a job already."""
    if isinstance(target, str):
        raise DefinitionError(f"@job takes its options by name: write @job(name={target!r}).")
    # A method object, bound or static, loses attributes or gives its function without them.
    loses = inspect.ismethod(target) or isinstance(target, staticmethod | classmethod)
    if loses or not inspect.isroutine(target) or not hasattr(target, "__dict__"):
        raise DefinitionError(
            f"@job is for functions; {target!r} is a {type(target).__name__}. Register other "
            "callables with registry.register(JobDefinition(handler=..., name=...))."
        )
    before = getattr(target, "definition", None)
    if isinstance(before, JobDefinition) and before.handler is target:
        raise DefinitionError(
            f"{target.__module__}.{target.__qualname__} is a job already "
            f"({before.qualified_name}). Register a second job for it with "
            "registry.register(JobDefinition(handler=..., name=...))."
        )


def _refuse_unknown(options: dict[str, Any]) -> None:
    known = [
        parameter.name
        for parameter in inspect.signature(JobDefinition).parameters.values()
        if parameter.name != "handler"
    ]
    for option in options:
        if option not in known:
            raise DefinitionError(unknown_option("@job", option, known))


__all__ = ["Dispatcher", "Job", "dispatcher_port", "job"]
