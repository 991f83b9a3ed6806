"""How handlers leave traces, and what they can see of the state around them."""

from __future__ import annotations

import os
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from django.db import connection
from django.utils import timezone, translation

from kumiko_django import current_tenant_id
from tests.app.models import Effect

if TYPE_CHECKING:
    from kumiko_django import JobContext

probe: ContextVar[str] = ContextVar("testapp_probe", default="clean")
"""Set by ``leaks-context`` and never put back; whoever reads something else than "clean" got it."""


def leave(ctx: JobContext, key: str, value: object = None) -> Effect:
    """Write an ``Effect``."""
    return Effect.objects.create(**_columns(ctx, key, value))


async def aleave(ctx: JobContext, key: str, value: object = None) -> Effect:
    """Write an ``Effect`` with the asynchronous ORM."""
    return await Effect.objects.acreate(**_columns(ctx, key, value))


def facts(ctx: JobContext) -> dict[str, Any]:
    """Collect what the context says, as JSON values."""
    return {
        "job_name": ctx.job_name,
        "job_id": ctx.job_id,
        "attempt": ctx.attempt,
        "final_attempt": ctx.final_attempt,
        "tenant_id": ctx.tenant_id,
        "triggered_by": None if ctx.triggered_by is None else ctx.triggered_by.id,
        "correlation_id": ctx.correlation_id,
        "request_id": ctx.request_id,
    }


def surroundings() -> dict[str, Any]:
    """Collect the state of thread, context and connection that a run may leave to the next.

    It asks Django's connection without opening one, so it may be called on the event loop too.
    """
    return {
        "language": translation.get_language(),
        "timezone": timezone.get_current_timezone_name(),
        "probe": probe.get(),
        "autocommit": connection.autocommit or connection.connection is None,
        "in_atomic_block": connection.in_atomic_block,
        "tenant_id": current_tenant_id(),
        "thread": threading.current_thread().name,
    }


def _columns(ctx: JobContext, key: str, value: object) -> dict[str, Any]:
    return {
        "job_name": ctx.job_name,
        "job_id": ctx.job_id,
        "tenant_id": current_tenant_id(),
        "key": key,
        "value": value,
        "pid": os.getpid(),
    }
