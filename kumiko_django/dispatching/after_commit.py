"""Sending after the commit: the request has succeeded by then, so nothing is raised into it.

What cannot be sent is logged and told by the ``dispatch_failed`` signal, with the payload.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from django.db import connections, transaction

from kumiko_django import signals
from kumiko_django.broker import producer
from kumiko_django.broker.door import Decision
from kumiko_django.broker.envelope import read_payload
from kumiko_django.broker.producer import NewJob
from kumiko_django.definitions.job import JobDefinition
from kumiko_django.dispatching import observed, skips
from kumiko_django.exceptions import BrokerUnavailable, KumikoError

logger = logging.getLogger("kumiko_django.dispatch")

SAME_CAPTURE_SECONDS = 0.5


class _Commit:
    """What the sends of one transaction share: when Redis is away, only the first waits for it.

    Ten dispatches in a transaction would otherwise wait ten times, inside one request.
    """

    failure: BrokerUnavailable | None = None
    ended = 0.0

    def recent_failure(self, alias: str) -> BrokerUnavailable | None:
        # A test case never commits; there one transaction lasts for all callbacks that it captures.
        captured = connections[alias].in_atomic_block
        if captured and time.monotonic() - self.ended > SAME_CAPTURE_SECONDS:
            return None
        return self.failure


class _Send:
    """The callback of one dispatch. One a dispatch, so that a savepoint takes just its own away."""

    def __init__(
        self, definition: JobDefinition, jobs: Sequence[NewJob], alias: str, commit: _Commit
    ) -> None:
        self._definition = definition
        self._jobs = tuple(jobs)
        self._alias = alias
        self.commit = commit

    def __call__(self) -> None:
        failure = self.commit.recent_failure(self._alias)
        if failure is None:
            self._send()
        else:
            self._report(self._jobs, failure)
        self.commit.ended = time.monotonic()

    def _send(self) -> None:
        added: list[Decision] = []
        try:
            producer.add_many(self._jobs, added)
        except KumikoError as error:
            if isinstance(error, BrokerUnavailable):
                self.commit.failure = error
            self._report(self._jobs[len(added) :], error)
        except Exception as error:
            logger.exception("Jobs could not be queued after the commit")
            unexpected = KumikoError(f"{type(error).__name__}: {error}")
            self._report(self._jobs[len(added) :], unexpected)
        else:
            self.commit.failure = None
        observed.count(self._jobs, added)
        skips.record(self._definition, self._jobs, added)

    def _report(self, jobs: tuple[NewJob, ...], error: KumikoError) -> None:
        logger.error(
            "%s could not be queued after the commit: %s",
            f"{jobs[0].name} ({jobs[0].job_id})"
            if len(jobs) == 1
            else f"{len(jobs):,} jobs {jobs[0].name} ({jobs[0].job_id} and following)",
            error,
        )
        observed.count_failed(jobs[0].name, len(jobs))
        for job in jobs:
            signals.dispatch_failed.send_robust(
                sender=self._definition,
                job_id=job.job_id,
                tenant_id=job.data.get("_tenantId"),
                payload=read_payload(job.data),
                error=error,
            )


def send_after_commit(definition: JobDefinition, jobs: Sequence[NewJob], alias: str) -> None:
    """Queue ``jobs`` when the transaction of ``alias`` commits; forget them when it rolls back."""
    commit = _commit_of(connections[alias].run_on_commit)
    transaction.on_commit(_Send(definition, jobs, alias, commit), using=alias)


def _commit_of(callbacks: Sequence[Any]) -> _Commit:
    """That of the dispatches which wait for the same commit already, else a new one."""
    for callback in reversed(callbacks):
        if isinstance(callback[1], _Send):
            return callback[1].commit
    return _Commit()
