"""Deliveries as the consumer makes them, for the tests of the room that runs them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from kumiko_django import JobContext
from kumiko_django.broker.delivery import Delivery, Settlement
from kumiko_django.history.recorder import Recorder
from kumiko_django.run.state import Run

NAME = "testapp:job:under-test"
"""The job that ``run_one`` registers."""


Meanwhile: TypeAlias = Callable[[asyncio.AbstractEventLoop, Any], None]
"""Called in a thread of its own while ``run_one`` runs something, with its loop and its runner."""


class RunOne(Protocol):
    """``run_one``"""

    def __call__(
        self, handler: Any, given: Delivery | None = None, interrupt: bool = False, **options: Any
    ) -> Settlement: ...


def delivery(**values: Any) -> Delivery:
    defaults: dict[str, Any] = {
        "lane": "worker",
        "job_name": "testapp:job:record",
        "job_id": "job-1",
        "data": {"_tenantId": "acme"},
        "created_at_ms": round(time.time() * 1000),
        "delay_ms": 0,
        "attempt": 1,
        "max_attempts": 1,
        "start": 1,
    }
    return Delivery(**{**defaults, **values})


def context() -> JobContext:
    """The context of a run that nobody records."""
    return Run(delivery(), "worker-1", Recorder()).context()
