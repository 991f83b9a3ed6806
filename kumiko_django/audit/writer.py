"""Writing windows to the database, and telling what became of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from django.db import connections, router, transaction

from kumiko_django import signals
from kumiko_django.audit.models import EscapeHatchUse
from kumiko_django.audit.windows import Snapshot, Window, definition_of
from kumiko_django.types import ambient
from kumiko_django.types.hatches import HatchUse, described
from kumiko_django.types.ids import SYSTEM

logger = logging.getLogger("kumiko_django.audit")


def write(batch: Sequence[Snapshot]) -> None:
    """Write all in one transaction; doing it twice changes nothing."""
    if not batch:
        return
    alias = router.db_for_write(EscapeHatchUse)
    uses = EscapeHatchUse._default_manager.using(alias)
    with transaction.atomic(using=alias):
        new: list[EscapeHatchUse] = []
        for snapshot in batch:
            found = 0
            if snapshot.window.tried:
                found = uses.filter(pk=snapshot.window.id).update(
                    count=snapshot.count,
                    detail=snapshot.detail,
                    last_used_at=snapshot.last_used_at,
                )
            if not found:  # nothing is there yet, or not any more
                new.append(snapshot.row())
        uses.bulk_create(new)
        for snapshot in batch:
            snapshot.window.tried = True


def in_test_case() -> bool:
    """Whether this thread is in a transaction that Django's TestCase has begun.

    No other connection sees what is in it, nor is anything of it to stay: so a use is written right
    here, and goes with it.
    """
    if _is_on_loop():
        return False
    return any(
        getattr(block, "_from_testcase", False)
        for connection in connections.all(initialized_only=True)
        for block in getattr(connection, "atomic_blocks", ())
    )


def write_here(use: HatchUse, now: float) -> None:
    """Write one use, as a record of its own, and tell of it."""
    window = Window(use, now)
    window.add(use)
    snapshot = window.snapshot()
    write([snapshot])
    announce(snapshot)


def _is_on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def announce(snapshot: Snapshot) -> None:
    """Send the signal for a record, in the scope of its tenant. Does not raise."""
    use = snapshot.window.use
    mode = "system" if use.tenant_id == SYSTEM else "tenant"
    scope = ambient.Scope(use.tenant_id, mode, "escape_hatch_used")  # type: ignore[arg-type]
    try:
        with ambient.entered({ambient.scope: scope}):
            signals.escape_hatch_used.send_robust(
                sender=definition_of(use), use=use, count=snapshot.count
            )
    except BaseException as error:  # noqa: BLE001  (send_robust passes SystemExit and its like on)
        logger.error("A receiver of escape_hatch_used broke off: %r", error)  # noqa: TRY400


def tell_lost(snapshot: Snapshot, why: str) -> None:
    """Say in the log what is not, and will not be, on record."""
    missing = snapshot.count - snapshot.window.stored
    logger.error("Not recorded, %s: %s (%d times)", why, described(snapshot.window.use), missing)
