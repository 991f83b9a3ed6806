"""A gate and a boot job. ``KUMIKO_TEST_GATE`` says what the gate does besides leaving effects."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from kumiko_django import JobContext, job
from tests.app.effects import leave


@job(boot_gate="one-at-a-time", tenant="system")
def check_schema(payload: Any, ctx: JobContext) -> None:
    """Leave effects (``gate-begin``, ``gate-end``); ``fail``, ``hang`` in a thread, ``exit``."""
    leave(ctx, "gate-begin")
    task = os.environ.get("KUMIKO_TEST_GATE", "")
    if task == "fail":
        threading.Thread(target=time.sleep, args=(60,), daemon=False).start()
        raise LookupError("the schema is too old")
    if task == "exit":
        raise SystemExit(0)
    leave(ctx, "gate-end")


@job(run_on_boot=True, tenant="system")
def seed(payload: Any, ctx: JobContext) -> None:
    """Leave an effect (``seed``)."""
    leave(ctx, "seed")
