"""Which rules hold for a job of a definition and a tenant.

Keys are of the tenant unless the definition says ``concurrency_scope="global"`` (P02, P19), and
know nothing of lanes: while a job moves to another lane, old and new are counted together (P18).
"""

from __future__ import annotations

from kumiko_django.broker.rules import Rules
from kumiko_django.definitions.concurrency import milliseconds, mode_of, window_ms
from kumiko_django.definitions.job import JobDefinition


def has_rules(definition: JobDefinition) -> bool:
    """Whether jobs of this definition pass the door at all; others pay nothing for it."""
    return mode_of(definition) != "parallel" or definition.max_per_tenant is not None


def rules_for(definition: JobDefinition, tenant_id: str) -> Rules | None:
    """The rules for a job, None where there are none.

    Args:
        definition: Its definition.
        tenant_id: The tenant it runs for, ``SYSTEM`` for none.
    """
    if not has_rules(definition):
        return None
    mode, cap = mode_of(definition), definition.max_per_tenant or 0
    own = f"{definition.qualified_name}:{tenant_id}"
    key = definition.qualified_name if definition.concurrency_scope == "global" else own
    slot_key, slots = "", 0
    if mode == "sequential":
        slot_key, slots = f"one:{key}", 1  # never more than any cap
    elif cap:
        slot_key, slots = f"cap:{own}", cap
    return Rules(
        mode=mode,
        mode_key=key if mode in ("skip", "replace", "debounce") else "",
        cap_key=own if cap else "",
        cap=cap,
        slot_key=slot_key,
        slots=slots,
        window_key=key if mode == "throttle" else "",
        window_ms=window_ms(definition),
        max_wait_ms=milliseconds(definition.max_wait),
    )
