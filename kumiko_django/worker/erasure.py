"""``erase_subject``: what the history and the queues know of a person is taken out of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from kumiko_django.broker import subjects as queues
from kumiko_django.broker.subjects import QueuePortion
from kumiko_django.definitions.job import JobDefinition
from kumiko_django.definitions.options import LANES
from kumiko_django.definitions.registry import registry
from kumiko_django.definitions.subjects import is_about, names_of
from kumiko_django.exceptions import DefinitionError
from kumiko_django.history import erase as history
from kumiko_django.history.erase import BATCH_SIZE, Portion
from kumiko_django.tenancy.scope import clean_tenant_id
from kumiko_django.types.ids import SYSTEM

logger = logging.getLogger("kumiko_django.history")


@dataclass
class Erasure:
    """How far an erasure has come; of a dry run, what it would do.

    Attributes:
        runs: Runs of the history that say nothing any more.
        logs: Lines of their logs.
        seen: Records deleted that their tenant could see.
        jobs: Ended jobs that the queues still had, erased as well.
        pending: Jobs with the person's data that have not ended. They are left.
        unended: Runs of theirs that the history has as running or deferred. They are left.
        unrecorded: Ends of runs that are on their way to the history. They are left.
        finished: Whether all was looked at.
    """

    runs: int = 0
    logs: int = 0
    seen: int = 0
    jobs: int = 0
    pending: int = 0
    unended: int = 0
    unrecorded: int = 0
    finished: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left; else it has to be repeated once that has ended."""
        return self.finished and not (self.pending or self.unended or self.unrecorded)

    def add(self, portion: Portion | QueuePortion) -> None:
        """Count a step."""
        if isinstance(portion, Portion):
            self.runs += portion.runs
            self.logs += portion.logs
            self.seen += portion.seen
            self.unended += portion.unended
        else:
            self.jobs += portion.ended
            self.pending += portion.pending
            self.unrecorded += portion.unrecorded


def _go_on(done: Erasure) -> bool:
    return True


def erase_subject(
    subject: str | int | UUID,
    *,
    tenant_id: Any,
    dry_run: bool = False,
    batch_size: int = BATCH_SIZE,
    go_on: Callable[[Erasure], bool] = _go_on,
) -> Erasure:
    """Erase a person from the history, and from ended jobs that the queues still have.

    What has not ended is counted and left; do it again then. To repeat it is harmless.

    Args:
        subject: The person's key, as payloads have it in the ``subject_fields`` of their job.
        tenant_id: Whose jobs and runs; ``None`` for those of all tenants.
        dry_run: Only count.
        batch_size: Runs looked at in one step; each is a short transaction.
        go_on: Asked after each step. False ends the work there.

    Returns:
        What was done, and what is left.

    Raises:
        DefinitionError: No job has ``subject_fields``.
        ScopeError: ``tenant_id`` is none.
        BrokerUnavailable: Redis does not answer; what was erased stays so.
        DatabaseError: The database refuses; likewise.
        ValueError: There is no subject.
    """
    person, jobs = _key(subject), _jobs()
    tenant = None if tenant_id is None else clean_tenant_id(tenant_id)
    done = Erasure()
    for portion in _steps(person, jobs, tenant, dry_run=dry_run, batch_size=batch_size):
        done.add(portion)
        if not go_on(done):
            return done
    done.finished = True
    if not dry_run:
        _tell(done)
    return done


def _key(subject: object) -> str:
    key = str(subject)
    if not key.strip():
        raise ValueError("erase_subject: the subject is empty; give the key of a person.")
    return key


def _jobs() -> dict[str, JobDefinition]:
    jobs = names_of(registry.all())
    if not jobs:
        raise DefinitionError(
            "No job says whose data its payloads hold, so nobody could be found. Give the "
            'definitions subject_fields, e.g. @job(subject_fields=("customer_id",)).'
        )
    return jobs


def _tell(done: Erasure) -> None:
    # Without the person's key: it would stay in the log.
    logger.info(
        "a person was erased: %d runs, %d log lines, %d records, %d jobs; %d left",
        done.runs, done.logs, done.seen, done.jobs, done.pending + done.unended + done.unrecorded,
    )  # fmt: skip


def _steps(
    subject: str,
    jobs: dict[str, JobDefinition],
    tenant: str | None,
    *,
    dry_run: bool,
    batch_size: int,
) -> Iterator[Portion | QueuePortion]:
    # The queues first: what ends meanwhile is in the history by the time that is looked at, or is
    # counted as on its way.
    is_theirs = partial(_is_theirs, jobs, subject, tenant)
    for lane in LANES:
        yield from queues.erase(lane, is_theirs, dry_run=dry_run)
    yield from history.erase(
        subject, jobs, tenant_id=tenant, dry_run=dry_run, batch_size=batch_size
    )


def _is_theirs(
    jobs: dict[str, JobDefinition],
    subject: str,
    tenant: str | None,
    name: str,
    tenant_id: Any,
    payload: Any,
) -> bool:
    definition = jobs.get(name)
    if definition is None or (tenant is not None and (tenant_id or SYSTEM) != tenant):
        return False
    return is_about(payload, definition, subject)
