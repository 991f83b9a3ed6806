"""Doorway for Django: the models that the rooms define."""

from __future__ import annotations

from kumiko_django.audit.models import EscapeHatchUse, HatchKind
from kumiko_django.history.models import JobRun, JobRunLog, JobStat, LogLevel, RunStatus
from kumiko_django.history.visible_models import TenantVisibleFailure, TenantVisibleRun

__all__ = [
    "EscapeHatchUse",
    "HatchKind",
    "JobRun",
    "JobRunLog",
    "JobStat",
    "LogLevel",
    "RunStatus",
    "TenantVisibleFailure",
    "TenantVisibleRun",
]
