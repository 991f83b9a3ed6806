"""Random steps at the door; ``KUMIKO_TEST_STEPS`` many, ``KUMIKO_TEST_SEED`` to repeat them."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from pytest_django import Settings

from kumiko_django import Backoff, JobContext
from tests.helpers.queues import QueueState
from tests.integration.admission.kept import Kept, Worker
from tests.integration.admission.model import CAP, Model
from tests.integration.worker.host_thread import Define

pytestmark = pytest.mark.once

STEPS = int(os.environ.get("KUMIKO_TEST_STEPS") or 1000)
SEED = int(os.environ.get("KUMIKO_TEST_SEED") or random.SystemRandom().randrange(10**6))


def works(payload: dict[str, Any], ctx: JobContext) -> None:
    """Never called here."""


@pytest.mark.timeout(120 + STEPS // 20)
def test_caps_sequences_and_order_hold_and_nothing_is_left(
    define: Define, queue: QueueState, worker: Worker, kept: Kept, settings: Settings
) -> None:
    """P01-P05, P12-P16, user-needs 16: after every step no cap is exceeded and no two of a sequence
    run; at the end every job that was not removed has ended, and the door keeps nothing."""
    # Nobody renews a lock here, and a job may be left running for as long as the fuzz takes.
    settings.KUMIKO = {**settings.KUMIKO, "LOCK_SECONDS": 24 * 60 * 60}
    options: dict[str, Any] = {"retries": 49, "backoff": Backoff.fixed(1)}
    definitions = {
        "sequential": define(works, name="sequential", concurrency="sequential", **options),
        "capped": define(works, name="capped", max_per_tenant=CAP, **options),
        "skip": define(works, name="skip", concurrency="skip", **options),
        "replace": define(works, name="replace", concurrency="replace", **options),
        "debounce": define(
            works, name="debounce", concurrency="debounce", debounce=0.02, max_wait=0.1, **options
        ),
        "both": define(works, name="both", concurrency="sequential", max_per_tenant=CAP, **options),
    }
    model = Model(definitions, queue, kept, worker, random.Random(SEED))
    try:
        for _ in range(STEPS):
            model.step()
        model.drain()
    except Exception as error:
        tail = ", ".join(model.steps[-30:])
        raise AssertionError(f"seed {SEED}, step {len(model.steps)}: {error}; {tail}") from error
    assert set(model.outcomes) >= {"sequential: parked", "capped: skipped", "skip: skipped"}
    assert kept.left() == [], f"seed {SEED}"
    assert queue.pending() == 0
    ended = {*queue.completed, *queue.failed}
    lost = {
        job.id: job
        for job in model.jobs.values()
        if job.id not in model.removed | ended and job.name not in ("replace", "debounce")
    }
    assert not lost, f"seed {SEED}: {lost}"
    assert ended == model.done
