"""Real workers that are killed, a Redis that is cut off, jobs that are removed: in random steps.

``KUMIKO_TEST_STEPS`` says how many, ``KUMIKO_TEST_SEED`` repeats load and victims; what a victim is
doing when it dies is up to the machine.
"""

from __future__ import annotations

import os
import random
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from kumiko_django import dispatch
from kumiko_django.history.models import JobRun
from tests.app.guarded import NOTED_CAP
from tests.helpers.processes import RunJobs
from tests.helpers.queues import QueueState
from tests.helpers.valkey import Valkey
from tests.helpers.waiting import wait_until
from tests.integration.admission.kept import Kept

STEPS = int(os.environ.get("KUMIKO_TEST_STEPS") or 1000)
SEED = int(os.environ.get("KUMIKO_TEST_SEED") or random.SystemRandom().randrange(10**6))
KILLS, OUTAGES = max(4, STEPS // 250), max(2, STEPS // 500)
WORKERS, LOCK_SECONDS, BACKLOG = 3, 4, 60
MOST = {"testapp:job:noted-sequence": 1, "testapp:job:noted-cap": NOTED_CAP}
TENANTS = ("acme", "globex", "initech")
REMOVE = """
local job = KEYS[1] .. ARGV[1]
if redis.call("EXISTS", job .. ":lock") == 1 or redis.call("HEXISTS", job, "finishedOn") == 1
    or redis.call("LPOS", KEYS[1] .. "active", ARGV[1]) then return 0 end
redis.call("LREM", KEYS[1] .. "wait", 0, ARGV[1])
redis.call("ZREM", KEYS[1] .. "delayed", ARGV[1])
return redis.call("DEL", job)
"""


class Chaos:
    """The steps, and what came of them."""

    def __init__(self, server: Valkey, client: Any, prefix: str, logs: Path) -> None:
        self.server, self.client, self.prefix, self.logs = server, client, prefix, logs
        self.queue = QueueState(client, f"{prefix}-worker")
        self.rng = random.Random(SEED)
        self.workers: list[RunJobs] = []
        self.started = 0
        self.sent: dict[str, tuple[str, str]] = {}
        """Job and tenant by id, in the order of dispatch."""
        self.removed: set[str] = set()

    def start(self) -> None:
        self.started += 1
        log = self.logs / f"runjobs-{self.started}.log"
        self.workers.append(RunJobs("worker", log, arguments=["--concurrency", "8"]))

    def run(self) -> None:
        rare = [self.kill] * KILLS + [self.cut_off] * OUTAGES + [self.remove] * (STEPS // 20)
        steps = [*rare, *[self.dispatch] * (STEPS - len(rare))]
        self.rng.shuffle(steps)
        for step in steps:
            step()

    def dispatch(self) -> None:
        wait_until(lambda: self.queue.pending() < BACKLOG, description="there is room", timeout=60)
        name, tenant = self.rng.choice(list(MOST)), self.rng.choice(TENANTS)
        payload = {"seconds": self.rng.choice([0, 0, 0.01, 0.05]), "fails": self.rng.random() < 0.1}
        made = dispatch(name, payload, tenant_id=tenant)
        if made:
            self.sent[made.job_id] = (name, tenant)

    def remove(self) -> None:
        """Another client removes a job that does not run."""
        candidates = [*self.queue.wait, *self.queue.delayed]
        if candidates:
            job_id = self.rng.choice(candidates)
            if self.client.eval(REMOVE, 1, self.queue.key(""), job_id):
                self.removed.add(job_id)

    def kill(self) -> None:
        ready = [each for each in self.workers if "consuming lane" in each.output()]
        if len(ready) < 2:
            return
        victim = self.rng.choice(ready)
        self.workers.remove(victim)
        victim.kill()
        self.client.rpush(f"{self.prefix}:noted", f"killed - {victim.pid}")
        self.start()

    def cut_off(self) -> None:
        """Redis does not answer for a second."""
        self.server.freeze()
        time.sleep(1)  # that long it is away
        self.server.thaw()

    def close(self) -> None:
        for worker in self.workers:
            worker.close()

    def faults(self) -> list[str]:
        """What should not have happened, by the notes of the handlers."""
        found: list[str] = []
        running: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
        numbers = {job_id: number for number, job_id in enumerate(self.sent)}
        begun: set[str] = set()
        latest: dict[tuple[str, str], int] = {}
        fences: dict[tuple[str, str], int] = {}
        for line in self.client.lrange(f"{self.prefix}:noted", 0, -1):
            what, job_id, pid, *fence = line.split()
            if what == "killed":
                for jobs in running.values():
                    for job in [job for job, owner in jobs.items() if owner == pid]:
                        del jobs[job]
                continue
            key = self.sent[job_id]
            if what == "end":
                running[key].pop(job_id, None)
                continue
            running[key][job_id] = pid
            if len(running[key]) > MOST[key[0]]:
                found.append(f"{len(running[key])} of {key} run at once: {running[key]}")
            if key[0].endswith("sequence"):
                if job_id not in begun and numbers[job_id] < latest.get(key, -1):
                    found.append(f"{job_id} of {key} begins after a later one")
                if int(fence[0]) <= fences.get(key, 0):
                    found.append(f"{job_id} of {key} has the token {fence[0]}")
                fences[key] = int(fence[0])
                latest[key] = max(latest.get(key, -1), numbers[job_id])
            begun.add(job_id)
        return found


@pytest.mark.acceptance
@pytest.mark.timeout(200 + STEPS)
def test_no_cap_is_exceeded_and_nothing_stays(
    transactional_db: None,
    own_valkey: Valkey,
    queue_prefix: str,
    settings: Settings,
    tmp_path: Path,
) -> None:
    """Issue 4, must hold; user-needs 16, P13, P15, P16, P20."""
    settings.KUMIKO = {**settings.KUMIKO, "LOCK_SECONDS": LOCK_SECONDS}
    with own_valkey.client() as client:
        chaos = Chaos(own_valkey, client, queue_prefix, tmp_path)
        try:
            for _ in range(WORKERS):
                chaos.start()
            chaos.run()
            wait_until(
                lambda: not chaos.queue.pending(),
                description=f"all is done (seed {SEED})", timeout=90, interval=0.1,
            )  # fmt: skip
            kept = Kept(client, queue_prefix)
            wait_until(
                lambda: not kept.left(), description="nothing is kept", timeout=5 * LOCK_SECONDS
            )
            ended = {*chaos.queue.completed, *chaos.queue.failed}
            assert set(chaos.sent) - ended - chaos.removed == set(), f"seed {SEED}"
            wait_until(
                lambda: not client.hlen(chaos.queue.key("kumiko:unrecorded")),
                description="the history follows", timeout=30,
            )  # fmt: skip
            final = JobRun.objects.filter(final=True).values_list("queue_job_id", flat=True)
            assert sorted(final) == sorted(ended)
        finally:
            chaos.close()
        faults = chaos.faults()
    assert not faults, "\n".join([f"seed {SEED}", *faults[:20]])
