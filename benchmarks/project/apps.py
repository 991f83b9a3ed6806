"""The app of the benchmarks."""

from __future__ import annotations

from django.apps import AppConfig


class BenchConfig(AppConfig):
    """Its label is the first part of the job names: ``bench:job:noop-sync``."""

    name = "benchmarks.project"
    label = "bench"
