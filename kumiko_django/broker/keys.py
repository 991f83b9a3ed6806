"""Names of queues and ids of jobs, exactly (B031, B065, B095, B102, P40)."""

from __future__ import annotations

import hashlib
import re

from kumiko_django.conf import get_settings
from kumiko_django.definitions.options import Lane

_PLAIN = re.compile(r"[A-Za-z0-9_-]+")


def queue_name(lane: Lane) -> str:
    """``<prefix>-<lane>``; another prefix is another world (B031, B032)."""
    return f"{get_settings().queue_prefix}-{lane}"


def _sanitise(text: str) -> str:
    # No colon: BullMQ splits keys and scheduler ids at colons (B096).
    return text.replace(".", "-").replace(":", "-")


def scheduler_id(job_name: str) -> str:
    """Id of the job's scheduler (B095). Job names have no dots, so two cannot share one (P40)."""
    return f"scheduler-{_sanitise(job_name)}"


def boot_id(job_name: str) -> str:
    """Id of the job that runs once at boot (B102)."""
    return f"boot-{_sanitise(job_name)}"


def event_job_id(event: str, event_id: str, job_name: str, tenant_id: str) -> str:
    """Id of the job that an event starts (P65): the same for the same event, job and tenant.

    The event's name and the tenant are in it, since ids are often unique in one table or for one
    tenant only, and a job whose id is known already is not added.
    """
    raw = "\0".join((event, event_id, job_name, tenant_id))
    return f"event-{_sanitise(job_name)}-{hashlib.sha256(raw.encode()).hexdigest()[:32]}"


def child_id(wrapper_id: str, tenant_id: str) -> str:
    """Id of a fan-out child (B065): the same for the same wrapper and tenant (B066).

    A tenant id with other characters than letters, digits, ``_`` and ``-`` gets a hash of the raw
    pair, since ``a.b`` and ``a-b`` would otherwise be one child (P40).
    """
    plain = f"child-{_sanitise(wrapper_id)}-{_sanitise(tenant_id)}"
    if _PLAIN.fullmatch(tenant_id):
        return plain
    digest = hashlib.sha256(f"{wrapper_id}\0{tenant_id}".encode()).hexdigest()[:8]
    return f"{plain}-{digest}"
