"""What the factory of a facet is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from kumiko_django.facets.protocols import Config, Files, Secrets
from kumiko_django.types.ids import SYSTEM_USER_ID

__all__ = ["SYSTEM_USER_ID", "FacetRequest"]


@dataclass(frozen=True, slots=True)
class FacetRequest:
    """For whom a facet is made. Factories are called in the scope of the run's tenant (P104).

    Attributes:
        tenant_id: The run's tenant; ``SYSTEM`` for work of none.
        job_name: Qualified name of the job.
        user_id: Who acts: the system user (B155, B156).
        triggered_by_id: The key of the user who caused the job, or None.
        correlation_id: Shared by everything that one request caused.
    """

    tenant_id: str
    job_name: str
    user_id: str
    triggered_by_id: str | None
    correlation_id: str
    _other: Callable[[str], Any] = field(repr=False, compare=False)

    @property
    def files(self) -> Files:
        """``ctx.files``, for facets that build on it; errors as there."""
        return cast("Files", self._other("files"))

    @property
    def config(self) -> Config:
        """``ctx.config``."""
        return cast("Config", self._other("config"))

    @property
    def secrets(self) -> Secrets:
        """``ctx.secrets``."""
        return cast("Secrets", self._other("secrets"))
