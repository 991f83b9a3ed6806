"""What a handler is given besides its payload, and what is ambient while it runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from kumiko_django.handlers.definition import HandlerDefinition
from kumiko_django.handlers.principals import Principal
from kumiko_django.types import ambient
from kumiko_django.types.origin import WriteOrigin


@dataclass(frozen=True, slots=True)
class HandlerContext:
    """Facts about one call.

    Attributes:
        handler_name: Qualified name of the handler.
        tenant_id: The tenant that it works for, which is the scope's.
        user: Who acts, with roles.
        caller_id: Key of the user who has caused the call, who may be another (P102); or None.
        job_name: Qualified name of the job that calls; None outside of jobs.
        correlation_id: Shared by everything that one request caused; may be None.
        write_origin: Who stands at the root of the chain of work, where that is known (B174).
    """

    handler_name: str
    tenant_id: str
    user: Principal
    caller_id: str | None
    job_name: str | None
    correlation_id: str | None
    write_origin: WriteOrigin | None


@dataclass(frozen=True, slots=True)
class Acting:
    """The innermost handler that runs, and as whom."""

    definition: HandlerDefinition
    principal: Principal


acting: ContextVar[Acting | None] = ContextVar("kumiko_acting", default=None)


def origin_of(principal: Principal) -> WriteOrigin | None:
    """The write origin of what a principal does here and now.

    The chain's own where there is one: filled in where there is none, never put in its place. In a
    job none means something, too: that no anonymous user has begun the chain (B170).
    """
    origin = ambient.write_origin.get()
    if origin is None and ambient.handler.get() is None:
        return WriteOrigin(principal.kind)
    return origin


@contextlib.contextmanager
def acting_as(definition: HandlerDefinition, principal: Principal) -> Iterator[None]:
    """A block in which a handler runs: what it dispatches and calls is done by the principal.

    The system is nobody's user: what it dispatches still names who has caused it.
    """
    values: dict[ContextVar[Any], Any] = {
        acting: Acting(definition, principal),
        ambient.write_origin: origin_of(principal),
    }
    if principal.kind != "system":
        values[ambient.user_id] = principal.id
    with ambient.entered(values):
        yield
