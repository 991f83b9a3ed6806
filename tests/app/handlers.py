"""Handlers of the test app, and jobs that call them in processes of their own."""

from __future__ import annotations

import contextvars
import threading
from typing import Any

from django.db import connections

from kumiko_django import JobContext, job, tenant_scope, write_handler
from kumiko_django.handlers import HandlerContext, write
from tests.app.effects import leave

Payload = dict[str, Any]
NOTE = "testapp:write:note"


@write_handler("note", roles=["staff", "system"])
def note(payload: Payload, ctx: HandlerContext) -> str:
    """Say as whom."""
    return str(ctx.user)


@job(escape_hatches={"system_identity": "to see what a grant is worth"})
def steps_out_of_its_run(payload: Payload, ctx: JobContext) -> None:
    """Write as ``user`` in a bare thread and in one with the context; leave what each came to."""
    found: dict[str, str] = {}

    def act(where: str) -> None:
        try:
            with tenant_scope(ctx.tenant_id):
                found[where] = str(write(NOTE, user=payload["user"]))
        except Exception as error:  # noqa: BLE001  (the test looks at it)
            found[where] = f"{type(error).__name__}: {error}"
        finally:
            connections.close_all()

    context = contextvars.copy_context()
    targets = {"bare": lambda: act("bare"), "copied": lambda: context.run(act, "copied")}
    for target in targets.values():
        thread = threading.Thread(target=target)
        thread.start()
        thread.join()
    leave(ctx, "found", found | {"run": ctx.write(NOTE)})
