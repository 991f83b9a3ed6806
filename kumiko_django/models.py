"""Doorway for Django: the models that the rooms define."""

from __future__ import annotations

from kumiko_django.history.models import JobRun, JobRunLog, JobStat, LogLevel, RunStatus

__all__ = ["JobRun", "JobRunLog", "JobStat", "LogLevel", "RunStatus"]
