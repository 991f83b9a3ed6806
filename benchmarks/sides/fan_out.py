"""Dispatches a job for every tenant and prints how many a second: ``fan_out KIND``.

``one-by-one`` is one call of ``dispatch`` for each tenant; ``wrapper`` is a single call, for all.
"""

from __future__ import annotations

import sys
import time

import django

from benchmarks.project.payloads import payload
from benchmarks.project.tenants import active_tenants

JOB = "bench:job:noop-each-tenant"

django.setup()

from kumiko_django import dispatch  # noqa: E402  (needs the setup)


def main(kind: str) -> None:
    """Dispatch in one of the two ways."""
    tenants = [None] if kind == "wrapper" else active_tenants()
    began = time.perf_counter()
    for tenant in tenants:
        dispatch(JOB, payload(0), tenant_id=tenant)
    sys.stdout.write(f"{len(tenants) / (time.perf_counter() - began)}\n")


if __name__ == "__main__":
    main(sys.argv[1])
