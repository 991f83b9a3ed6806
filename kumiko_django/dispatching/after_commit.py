"""Sending after the commit: the request has succeeded by then, so nothing is raised into it.

What cannot be sent is logged and told by the ``dispatch_failed`` signal, with the payload.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from functools import partial

from django.db import transaction

from kumiko_django import signals
from kumiko_django.broker import producer
from kumiko_django.broker.envelope import read_payload
from kumiko_django.broker.producer import NewJob
from kumiko_django.definitions.registry import registry
from kumiko_django.exceptions import BrokerUnavailable, KumikoError

logger = logging.getLogger("kumiko_django.dispatch")

SAME_COMMIT_SECONDS = 0.5


class _LastFailure(threading.local):
    """When a send after a commit last failed in this thread, and how.

    The callbacks of one commit run right after one another. Without this, ten dispatches in a
    transaction would wait ten times for a Redis that is away, inside one request.
    """

    at: float = float("-inf")
    error: KumikoError | None = None


_last_failure = _LastFailure()


def send_after_commit(jobs: Sequence[NewJob], alias: str) -> None:
    """Queue ``jobs`` when the transaction of ``alias`` commits; forget them when it rolls back."""
    # One callback a dispatch, so that a rolled-back savepoint takes just its own with it.
    transaction.on_commit(partial(_send, tuple(jobs)), using=alias)


def _send(jobs: tuple[NewJob, ...]) -> None:
    recent = _last_failure.error
    if recent is not None and time.monotonic() - _last_failure.at < SAME_COMMIT_SECONDS:
        _report(jobs, recent)
        return
    try:
        producer.add_many(jobs)
    except KumikoError as error:
        _report(jobs, error)
        if isinstance(error, BrokerUnavailable):
            _last_failure.at, _last_failure.error = time.monotonic(), error
    except Exception as error:
        logger.exception("Jobs could not be queued after the commit")
        _report(jobs, KumikoError(f"{type(error).__name__}: {error}"))
    else:
        _last_failure.error = None


def _report(jobs: tuple[NewJob, ...], error: KumikoError) -> None:
    for job in jobs:
        logger.error(
            "Job %s (%s) was committed but could not be queued: %s", job.job_id, job.name, error
        )
        signals.dispatch_failed.send_robust(
            sender=registry.get(job.name),
            job_id=job.job_id,
            tenant_id=job.data.get("_tenantId"),
            payload=read_payload(job.data),
            error=error,
        )
