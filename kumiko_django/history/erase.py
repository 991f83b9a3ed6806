"""Erasing what the history knows of a person: runs stay, and say nothing any more.

A run is about a person if its payload says so in a field that its job declares. A run that has not
ended is left as it is, to be found by the next erasure: its end would bring back what was taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db import router, transaction
from django.db.models import Q, QuerySet

from kumiko_django.definitions.job import JobDefinition
from kumiko_django.definitions.subjects import ERASED, is_about
from kumiko_django.history import stats
from kumiko_django.history.models import JobRun, JobRunLog
from kumiko_django.history.visible_models import TenantVisibleFailure, TenantVisibleRun

BATCH_SIZE: Final = 200
"""Payloads may be large: so many are in memory at once."""
_NONE: Final = UUID(int=0)
_JSON: Final = ("result", "progress")
_TEXTS: Final = ("error", "traceback", "object_ref")
_MAX_DIGITS: Final = 18


class Portion(NamedTuple):
    """What one step has done, or would do.

    Attributes:
        runs: Runs erased.
        logs: Lines of their logs.
        unended: Runs about the person that have not ended, and were left.
        seen: Records deleted that their tenant could see.
        seconds: How long it took.
    """

    runs: int = 0
    logs: int = 0
    unended: int = 0
    seen: int = 0
    seconds: float = 0.0


def erase(
    subject: str,
    jobs: Mapping[str, JobDefinition],
    *,
    tenant_id: str | None,
    dry_run: bool,
    batch_size: int,
) -> Iterator[Portion]:
    """Erase a person, batch after batch, each in a short transaction of its own.

    Args:
        subject: The person's key, as text.
        jobs: Definitions by the names of their runs.
        tenant_id: Whose runs; None for those of all.
        dry_run: Only count.
        batch_size: Runs looked at in one step.
    """
    alias = router.db_for_write(JobRun)
    for name, definition in jobs.items():
        runs = JobRun.objects.using(alias).filter(job_name=name)
        if tenant_id is not None:
            runs = runs.filter(tenant_id=tenant_id)
        is_theirs = partial(is_about, definition=definition, subject=subject)
        yield from _erase_runs(alias, runs, is_theirs, dry_run=dry_run, batch_size=batch_size)
        began = time.monotonic()
        seen = _delete_seen(alias, name, definition, subject, tenant_id, dry_run=dry_run)
        yield Portion(seen=seen, seconds=time.monotonic() - began)


def _erase_runs(
    alias: str,
    runs: QuerySet[JobRun],
    is_theirs: Callable[[Any], bool],
    *,
    dry_run: bool,
    batch_size: int,
) -> Iterator[Portion]:
    position = _NONE
    while True:
        began = time.monotonic()
        ahead = runs.filter(id__gt=position).order_by("id")
        batch = list(ahead.values_list("id", "status", "payload")[:batch_size])
        if not batch:
            return
        position = batch[-1][0]
        theirs = [(pk, status) for pk, status, payload in batch if is_theirs(payload)]
        ended = [pk for pk, status in theirs if status not in stats.UNFINISHED]
        # What was written later into a run that was erased before, whoever it was about: a worker
        # that had been given up for lost, say.
        again = [pk for pk, _, payload in batch if payload == ERASED]
        logs = _erase(alias, ended, again, dry_run=dry_run) if ended or again else 0
        unended = len(theirs) - len(ended)
        yield Portion(len(ended), logs, unended, seconds=time.monotonic() - began)


def _erase(alias: str, ended: list[UUID], again: list[UUID], *, dry_run: bool) -> int:
    """Erase these runs; give how many lines of their logs said something."""
    ids = [*ended, *again]
    lines = JobRunLog.objects.using(alias).filter(run_id__in=ids).exclude(message=ERASED)
    if dry_run:
        return lines.count()
    with transaction.atomic(using=alias):
        runs = JobRun.objects.using(alias).filter(id__in=ids)
        for name in _JSON:
            runs.filter(**{f"{name}__isnull": False}).update(**{name: ERASED})
        for name in _TEXTS:
            runs.exclude(**{name: ""}).update(**{name: ERASED})
        runs.filter(id__in=ended).update(payload=ERASED)
        return lines.update(message=ERASED, data={})


def _delete_seen(
    alias: str,
    name: str,
    definition: JobDefinition,
    subject: str,
    tenant_id: str | None,
    *,
    dry_run: bool,
) -> int:
    """Delete what the tenant sees of the person's runs: its subject is their key."""
    number = 0
    for declared, model in (
        (definition.tenant_visible_run, TenantVisibleRun),
        (definition.tenant_visible_failure, TenantVisibleFailure),
    ):
        fields = set(definition.subject_fields) & set(declared.subject if declared else ())
        for field in sorted(fields):
            for value in _written(subject):
                rows: Any = model._default_manager.using(alias).naming(field, value)
                rows = rows.filter(Q() if tenant_id is None else Q(tenant_id=tenant_id))
                rows = rows.filter(job_name=name)
                number += rows.count() if dry_run else rows.delete()[0]
    return number


def _written(subject: str) -> list[str | int]:
    """The person's key as a payload may have it: as text, and as a number where it is one."""
    is_number = subject.isascii() and subject.isdigit() and len(subject) <= _MAX_DIGITS
    return [subject, int(subject)] if is_number and str(int(subject)) == subject else [subject]
