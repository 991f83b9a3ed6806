"""The tracer: where spans go. Small, so that anything can be one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal, Protocol, TypeAlias

from kumiko_django.types.trace import TraceParent

Attribute: TypeAlias = str | int | float | bool
Kind: TypeAlias = Literal["internal", "producer", "consumer"]
Parent: TypeAlias = TraceParent | Literal["current"] | None


class Span(Protocol):
    """A span that has begun."""

    @property
    def context(self) -> TraceParent | None:
        """Where it stands; None where that is not known."""
        ...

    def set_attribute(self, name: str, value: Attribute) -> None:
        """Say something about it."""
        ...

    def fail(self, message: str, error: BaseException | None = None, traceback: str = "") -> None:
        """Mark it as failed.

        Args:
            message: What went wrong, without secrets.
            error: The exception. Its own text may have secrets.
            traceback: Where, without secrets.
        """
        ...


class Tracer(Protocol):
    """What ``TRACER`` has to be.

    Called from any thread and from the event loop: it must not block. What it raises is logged once
    and changes nothing else, and so is what it gives for a place in a trace that is none.
    """

    def span(
        self,
        name: str,
        *,
        kind: Kind = "internal",
        attributes: Mapping[str, Attribute] | None = None,
        parent: Parent = "current",
        links: Sequence[TraceParent] = (),
    ) -> AbstractContextManager[Span]:
        """A span that begins when its block is entered and ends when that is left.

        In the block it is the current one, by a ContextVar: the handler of a job runs in the
        context in which the block was entered, in another thread perhaps. An exception that leaves
        the block marks the span as failed. Where a handler cannot be ended, the block is left in
        another context than it was entered in.

        Args:
            name: What is done.
            kind: Whether it hands work over, takes it over, or neither.
            attributes: What is known about it.
            parent: The span that it is part of; None: it begins a trace.
            links: Spans that it has to do with.
        """
        ...

    def current(self) -> TraceParent | None:
        """The span in whose block the caller is, if any."""
        ...
