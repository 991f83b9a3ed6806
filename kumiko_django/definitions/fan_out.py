"""Jobs for every tenant: the options that make one, and the wrapper that is queued for it (B061).

A dispatch of such a job queues one wrapper, under a name of its own. When that runs, it adds one
child for each active tenant, under the job's own name.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

from kumiko_django.definitions.job import JobDefinition

WRAPPER_PREFIX: Final = "_perTenant:"
WRAPPER_RETRIES: Final = 2
"""A wrapper is tried three times at least, whatever its job says: breaking off in the middle leaves
some tenants out, and repeating it is harmless (P39)."""


def wrapper_name(job_name: str) -> str:
    """The name under which the wrapper of a job is queued."""
    return f"{WRAPPER_PREFIX}{job_name}"


def wrapped_name(name: str) -> str | None:
    """The job whose wrapper is queued under this name; None for a plain name."""
    return name.removeprefix(WRAPPER_PREFIX) if name.startswith(WRAPPER_PREFIX) else None


def _do(work: Any, ctx: Any) -> Any:
    """The handler of every wrapper. Its runs are given something to do instead of a payload."""
    return work(ctx)


@dataclass(frozen=True, eq=False)
class Wrapper(JobDefinition):
    """How the wrapper of a job runs: like any job, for no tenant. Not in the registry.

    Attributes:
        target: The job.
    """

    target: JobDefinition | None = None

    @cached_property
    def qualified_name(self) -> str:
        """:func:`wrapper_name` of the job's."""
        return wrapper_name(self.job.qualified_name)

    @property
    def job(self) -> JobDefinition:
        """The job that it is the wrapper of."""
        if self.target is None:
            raise LookupError("a wrapper of nothing")
        return self.target


@lru_cache(maxsize=1024)
def wrapper_of(definition: JobDefinition) -> Wrapper:
    """The wrapper of a job: on its lane, with its priority, and its retries or more (B037, B068).

    Neither the job's time limit nor its modes apply to it; they are for the children.
    """
    return Wrapper(
        handler=_do,
        name=definition.name,
        app_label=definition.app_label,
        lane=definition.lane,
        tenant="system",
        retries=max(definition.retries or 0, WRAPPER_RETRIES),
        backoff=definition.backoff,
        priority=definition.priority,
        description=definition.description,
        target=definition,
    )


def spread_of(definition: JobDefinition) -> dt.timedelta:
    """The time over which the children of one fan-out are spread."""
    spread = definition.spread
    if isinstance(spread, dt.timedelta):
        return spread
    return dt.timedelta(seconds=spread or 0)
