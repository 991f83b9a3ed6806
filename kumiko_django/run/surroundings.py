"""What is ambient while a run lasts (B134)."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from kumiko_django.tenancy.scope import run_scope
from kumiko_django.types import ambient

if TYPE_CHECKING:
    from kumiko_django.run.state import Run


def ambient_values(run: Run, tenant_id: str | None = None) -> dict[ContextVar[Any], Any]:
    """The values of a run, in the scope of its tenant or of another."""
    origin = run.meta.write_origin
    return {
        ambient.scope: run_scope(tenant_id or run.tenant_id),
        ambient.user_id: run.meta.triggered_by_id,
        ambient.request_id: run.request_id,
        ambient.correlation_id: run.correlation_id,
        ambient.write_origin: None if origin is None else origin.via(run.name),
        ambient.trace: run.trace,
        ambient.run: ambient.RunIds(run.run_id, run.delivery.job_id),
        ambient.handler: run.name,
        ambient.accepts_personal_data: getattr(run.definition, "accepts_personal_data", None),
        ambient.feature: None if run.definition is None else run.definition.app_label,
    }
