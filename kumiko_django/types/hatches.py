"""The one doorway through which the use of an escape hatch is told (B151, P103, P107).

Whoever opens a hatch calls :func:`report_use`, before anything goes through it, and for what it
refuses. Whoever keeps the record plugs itself into :data:`hatch_port`; until then it is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias
from uuid import UUID

logger = logging.getLogger("kumiko_django.audit")

SCOPE_SWITCH: Final = "scope_switch"
"""No grant, but on record as well: code of a tenant has entered another scope."""


@dataclass(frozen=True, slots=True)
class HatchUse:
    """One use of an escape hatch, or one that was refused.

    Attributes:
        kind: The grant: ``unsafe_raw``, ``global_writes``, ``cross_tenant_reads`` or
            ``system_identity``; or ``scope_switch``.
        reason: Why it is allowed, or was refused.
        tenant_id: Of the work that used it.
        actor_id: Key of the user who acts; the all-zero UUID for the system user.
        caller_id: Key of the user who caused the work, or None.
        job_name: Qualified name of the job; empty outside of jobs.
        run_id: Its run, or None.
        detail: What was done, in a few words.
        refused: Whether it was.
    """

    kind: str
    reason: str
    tenant_id: str
    actor_id: str
    caller_id: str | None = None
    job_name: str = ""
    run_id: UUID | None = None
    detail: str = ""
    refused: bool = False


Sink: TypeAlias = Callable[[HatchUse], None]


def described(use: HatchUse) -> str:
    """A use in one line, with all that is known of it."""
    return (
        f"escape hatch {use.kind} {'refused' if use.refused else 'used'}: {use.detail!r} "
        f"({use.reason!r}; job {use.job_name or 'none'}, run {use.run_id}, "
        f"tenant {use.tenant_id!r}, actor {use.actor_id!r}, caller {use.caller_id!r})"
    )


def log_use(use: HatchUse) -> None:
    """Write a use to the log."""
    logger.log(logging.WARNING if use.refused else logging.INFO, "%s", described(use))


def _ignore(run_id: UUID) -> None:
    """Nothing is kept for a run."""


class _Port:
    """Where the room that keeps the record plugs itself in."""

    sink: Sink = staticmethod(log_use)
    run_ended: Callable[[UUID], None] = staticmethod(_ignore)


hatch_port = _Port()


def report_use(
    kind: str,
    reason: str,
    *,
    tenant_id: str,
    actor_id: str,
    caller_id: str | None = None,
    job_name: str = "",
    run_id: UUID | None = None,
    detail: str = "",
    refused: bool = False,
) -> None:
    """Tell of a use; arguments as the attributes of :class:`HatchUse`. Does not raise."""
    use = HatchUse(kind, reason, tenant_id, actor_id, caller_id, job_name, run_id, detail, refused)
    try:
        hatch_port.sink(use)
    except Exception:
        logger.exception("The use of an escape hatch could not be recorded: %r", use)
