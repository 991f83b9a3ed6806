"""What is true of the current chain of work: ContextVars, and one way to set several at once.

Who sets them: ``tenant_scope`` and ``system_scope`` the scope, a run all of them. Who reads them:
dispatch, which stamps them onto the jobs it sends, and whoever logs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple
from uuid import UUID

from kumiko_django.types.origin import WriteOrigin
from kumiko_django.types.trace import TraceParent


@dataclass(frozen=True, slots=True)
class Scope:
    """The ambient tenant, and whether work acts for that tenant or for the system itself."""

    tenant_id: str
    mode: Literal["tenant", "system"]
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The ids of the span that work belongs to, of whatever form (B046, B074)."""

    trace_id: str
    span_id: str
    sampled: bool = True

    @property
    def parent(self) -> TraceParent | None:
        """The same as other systems understand it; None where the ids have another form."""
        return TraceParent.of(self.trace_id, self.span_id, sampled=self.sampled)

    @classmethod
    def at(cls, parent: TraceParent) -> TraceContext:
        """The same of a span."""
        return cls(parent.trace_id, parent.span_id, parent.sampled)


class RunIds(NamedTuple):
    """The run that work is part of."""

    run_id: UUID
    job_id: str


scope: ContextVar[Scope | None] = ContextVar("kumiko_scope", default=None)
user_id: ContextVar[str | None] = ContextVar("kumiko_user_id", default=None)
request_id: ContextVar[str | None] = ContextVar("kumiko_request_id", default=None)
correlation_id: ContextVar[str | None] = ContextVar("kumiko_correlation_id", default=None)
write_origin: ContextVar[WriteOrigin | None] = ContextVar("kumiko_write_origin", default=None)
trace: ContextVar[TraceContext | None] = ContextVar("kumiko_trace", default=None)
accepts_personal_data: ContextVar[str | None] = ContextVar("kumiko_personal_data", default=None)
"""Why the running view or job may write personal fields whoever began it; None: it may not."""
view_name: ContextVar[Callable[[], str] | None] = ContextVar("kumiko_view_name", default=None)
"""Gives the name of the view that answers the request, once it is known."""
handler: ContextVar[str | None] = ContextVar("kumiko_handler", default=None)
"""Qualified name of the job that is running (B134)."""
feature: ContextVar[str | None] = ContextVar("kumiko_feature", default=None)
"""Label of the app that owns the running job (B017)."""
run: ContextVar[RunIds | None] = ContextVar("kumiko_run", default=None)


@contextlib.contextmanager
def entered(values: dict[ContextVar[Any], Any]) -> Iterator[None]:
    """Set the given variables for a block and put back, whatever happens, what was there before."""
    tokens = [(variable, variable.set(value)) for variable, value in values.items()]
    try:
        yield
    finally:
        for variable, token in reversed(tokens):
            variable.reset(token)


def context_with(values: dict[ContextVar[Any], Any]) -> Context:
    """A copy of the current context in which the given variables are set."""
    context = copy_context()
    context.run(_set_all, values)
    return context


def _set_all(values: dict[ContextVar[Any], Any]) -> None:
    for variable, value in values.items():
        variable.set(value)
