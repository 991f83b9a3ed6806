"""The tenants of the benchmarks, where there are any."""

from __future__ import annotations

import os


def active_tenants() -> list[str]:
    """As many ids as ``BENCH_TENANTS`` says."""
    return [f"tenant-{number:05}" for number in range(int(os.environ["BENCH_TENANTS"]))]
