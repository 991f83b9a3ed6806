"""SIGKILL at random moments under load: 10 in ``make test``, 200 in ``make soak``."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest
import redis
from django.db import connection

from tests.chaos import kills
from tests.chaos.evidence import Evidence
from tests.chaos.kills import Plan

KILLS = int(os.environ.get("KUMIKO_TEST_KILLS") or 10)
SEED = int(os.environ.get("KUMIKO_TEST_SEED") or random.SystemRandom().randrange(10**6))
SECONDS_A_KILL = 6
FAULTS_SHOWN = 20


@pytest.mark.timeout(120 + KILLS * SECONDS_A_KILL)
def test_every_job_completes_once_and_every_lost_run_is_on_record(
    tmp_path: Path,
    raw_redis: redis.Redis,
    queue_prefix: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Must hold (P30, design 9): exactly one final completed run for each job, as many lost ones as
    its ``stalledCounter``, none on running, logs complete, nothing left in the queue."""
    plan = Plan(kills=KILLS, seed=SEED)
    with capsys.disabled():
        sys.stdout.write(f"\nkills: seed {SEED}, {connection.vendor}\n")
        sys.stdout.flush()
    killed = kills.run(plan, tmp_path, Evidence(raw_redis, queue_prefix))
    with capsys.disabled():
        sys.stdout.write(f"{connection.vendor}: {killed.report()}\n")
    faults = killed.findings.faults
    assert not faults, "\n".join([f"{len(faults)} faults, such as", *faults[:FAULTS_SHOWN]])
    assert killed.findings.jobs > plan.backlog, "there was a load"
    assert killed.findings.lost > 0, "kills have cost runs"
