"""The active tenants, as ``TENANTS`` of the host project gives them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from kumiko_django.conf import get_settings
from kumiko_django.exceptions import SettingsError
from kumiko_django.tenancy.scope import clean_tenant_id

FRESH_SECONDS: Final = 1.0
"""How old an answer may be when a run asks whether its tenant is still active. Thousands of
children that begin at the same time would otherwise ask for all tenants thousands of times."""
REST: Final = 20.0
"""An answer that takes long is used for so many times as long."""


def no_tenants(job_name: str) -> SettingsError:
    """Why a job cannot run for every tenant here (B062)."""
    return SettingsError(
        f"{job_name} runs for every tenant (per_tenant=True), and nothing says which tenants there "
        'are. Set KUMIKO["TENANTS"] to a callable that gives the ids of the active tenants.'
    )


def active_tenants() -> list[str]:
    """The ids of the active tenants, asked for now (B224); in their order, each once.

    Raises:
        SettingsError: ``TENANTS`` cannot be asked.
        ScopeError: One of the ids is unusable.
    """
    return list(dict.fromkeys(map(clean_tenant_id, get_settings().active_tenants())))


@dataclass(frozen=True, slots=True)
class _Answer:
    source: Any
    tenants: frozenset[str]
    asked_at: float
    """On the wall clock, since it is compared with when a job was queued."""
    fresh_until: float


class Directory:
    """Remembers for a moment which tenants are active. Safe to use from any thread."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._answer: _Answer | None = None

    def known(self, tenant_id: str, since: float) -> bool | None:
        """Whether a tenant is active, without asking anybody; None where that cannot be said.

        Args:
            tenant_id: The tenant.
            since: When its job was queued, in seconds since 1970. That a tenant is *not* active is
                only believed of an answer that is younger: the tenant may be new.
        """
        answer = self._answer
        if answer is None or answer.source != get_settings().tenants:
            return None
        now = self._clock()
        if not answer.asked_at <= now < answer.fresh_until:
            return None
        if tenant_id in answer.tenants:
            return True
        return False if answer.asked_at > since else None

    def is_active(self, tenant_id: str, since: float) -> bool:
        """Whether a tenant is active, by an answer of ``TENANTS`` that is young enough.

        Raises:
            SettingsError, ScopeError: As :func:`active_tenants`; and whatever ``TENANTS`` raises.
        """
        with self._lock:
            known = self.known(tenant_id, since)
            if known is not None:
                return known
            answer = self._answer = self._ask()
        return tenant_id in answer.tenants

    def _ask(self) -> _Answer:
        source, began = get_settings().tenants, self._clock()
        tenants = frozenset(active_tenants())
        took = max(self._clock() - began, 0)
        return _Answer(source, tenants, began, began + max(FRESH_SECONDS, took * (1 + REST)))


directory = Directory()
"""That of this process."""
