"""Where async code has to ask whether a transaction is open."""

from __future__ import annotations

import asyncio
from typing import Any

from asgiref.sync import AsyncToSync, SyncToAsync


def sync_code_has_run() -> bool:
    """Whether sync code of the current async context has a thread, and so maybe a transaction.

    Transactions live in the thread that async code shares for its sync work. Where nothing has been
    run there yet, no transaction can be open, and going there to ask would take several times as
    long as the dispatch itself. Reads asgiref's own tables; what cannot be read means yes.
    """
    if getattr(AsyncToSync.executors, "current", None) is not None:
        return True  # the thread that has called async_to_sync
    context = SyncToAsync.thread_sensitive_context.get(None)
    if context is None:
        if asyncio.get_running_loop() in AsyncToSync.loop_thread_executors:
            return True  # the same, for a task that has not inherited who called
        return _has_thread(SyncToAsync.single_thread_executor)
    executor = SyncToAsync.context_to_thread_executor.get(context)
    return executor is not None and _has_thread(executor)


def _has_thread(executor: Any) -> bool:
    # A pool starts its thread with the first thing to do; so does the one of an async run.
    return bool(getattr(executor, "_threads", True))
