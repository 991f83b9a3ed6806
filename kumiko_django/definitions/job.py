"""The definition of one job: immutable, complete, and wrong nowhere or not made at all (P10)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

from kumiko_django.definitions import names
from kumiko_django.definitions.options import (
    DEFAULT_BACKOFF,
    LANES,
    Backoff,
    Lane,
    Priority,
    check_priority,
)
from kumiko_django.definitions.schema import PayloadSchema
from kumiko_django.definitions.triggers import Manual, Trigger
from kumiko_django.exceptions import DefinitionError

Handler: TypeAlias = Callable[..., Any]
TenantRule: TypeAlias = Literal["required", "system"]
TENANT_RULES: tuple[TenantRule, ...] = ("required", "system")


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
        retries: How often a failed run is tried again; None and 0 mean once and no more.
        backoff: Pause between attempts; with retries and none given, one second (P37).
        priority: ``high``, ``normal``, ``low`` or 1 to 2,097,152; a dispatch may override it.
        schema: A pydantic model, dataclass or TypedDict that payloads must fit.
        aliases: Names under which the job was known before; jobs queued under them still run.
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
    retries: int | None = None
    backoff: Backoff | None = None
    priority: Priority = "normal"
    schema: Any = None
    aliases: tuple[str, ...] = ()
    description: str = ""
    payload_schema: PayloadSchema | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        where = f"job {self._where()}"
        self._check_handler(where)
        short = self.name or names.kebab(getattr(self.handler, "__name__", ""))
        self._set("name", names.check_short_name(short, where))
        self._check_choices(where)
        self._check_retries(where)
        self._set("aliases", _check_aliases(self.aliases, where))
        if self.schema is not None:
            self._set("payload_schema", PayloadSchema(self.schema, where))
        if not self.description:
            self._set("description", _first_doc_line(self.handler))

    @property
    def is_async(self) -> bool:
        """Whether the handler runs on the event loop instead of in a thread."""
        return inspect.iscoroutinefunction(self.handler)

    @property
    def attempts(self) -> int:
        """How many runs a job gets at most (B079)."""
        return (self.retries or 0) + 1

    @property
    def effective_backoff(self) -> Backoff:
        """The backoff that applies: the given one, else the default of one second (P37)."""
        return self.backoff or DEFAULT_BACKOFF

    @cached_property
    def module(self) -> str:
        """Dotted module of the handler, for messages and operators."""
        return getattr(self.handler, "__module__", None) or "?"

    @property
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
        return names.qualify(self.app_label, self.name, f"job {self._where()}")

    @property
    def qualified_aliases(self) -> tuple[str, ...]:
        """The aliases with their app; a short alias belongs to this job's app."""
        label = self.app_label or ""
        return tuple(
            alias
            if names.is_qualified(alias)
            else names.qualify(label, alias, f"job {self._where()}")
            for alias in self.aliases
        )

    def _where(self) -> str:
        handler = self.handler
        module = getattr(handler, "__module__", "?")
        name = getattr(handler, "__qualname__", type(handler).__qualname__)
        return f"{module}.{name}"

    def _set(self, attribute: str, value: object) -> None:
        object.__setattr__(self, attribute, value)

    def _check_handler(self, where: str) -> None:
        if not callable(self.handler):
            raise DefinitionError(
                f"{where}: handler must be a function taking (payload, ctx), not {self.handler!r}."
            )
        if inspect.isgeneratorfunction(self.handler) or inspect.isasyncgenfunction(self.handler):
            raise DefinitionError(
                f"{where}: the handler is a generator function; calling it would run nothing. "
                "Use return instead of yield."
            )
        try:
            inspect.signature(self.handler).bind("payload", "ctx")
        except TypeError as error:
            raise DefinitionError(
                f"{where}: the handler must be callable as handler(payload, ctx): {error}."
            ) from error
        except ValueError:  # a builtin without a signature: the call itself will tell
            return

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
        if not isinstance(self.trigger, Manual):
            raise DefinitionError(f"{where}: trigger must be Manual(), not {self.trigger!r}.")
        if not isinstance(self.description, str):
            raise DefinitionError(f"{where}: description must be text, not {self.description!r}.")
        try:
            check_priority(self.priority, where)
        except ValueError as error:
            raise DefinitionError(str(error)) from None

    def _check_retries(self, where: str) -> None:
        retries = self.retries
        if retries is not None and (
            isinstance(retries, bool) or not isinstance(retries, int) or retries < 0
        ):
            raise DefinitionError(
                f"{where}: retries must be a whole number of at least 0, not {retries!r}."
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


def _check_aliases(aliases: Iterable[str], where: str) -> tuple[str, ...]:
    if isinstance(aliases, str):
        raise DefinitionError(f"{where}: aliases must be a list of names; write [{aliases!r}].")
    checked = []
    for alias in aliases:
        if isinstance(alias, str) and names.is_qualified(alias):
            checked.append(alias)
        elif isinstance(alias, str) and ":" in alias:
            raise DefinitionError(
                f"{where}: alias {alias!r} is neither a short name nor of the form "
                "'<app-label>:job:<name>'."
            )
        else:
            checked.append(names.check_short_name(alias, f"{where}, aliases"))
    return tuple(checked)


def _first_doc_line(handler: Handler) -> str:
    return (inspect.getdoc(handler) or "").strip().split("\n", 1)[0]
