"""Random steps at the door, and what must hold after each of them.

Workers are led by hand, so a seed repeats everything. A worker that dies is one whose lock is gone
and that is never heard of again.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from kumiko_django.broker import door, producer
from kumiko_django.broker.delivery import (
    Complete,
    Fail,
    GiveBack,
    Postpone,
    Retry,
    Settlement,
)
from kumiko_django.broker.options import JobOptions
from kumiko_django.definitions.job import JobDefinition
from kumiko_django.dispatching.request import Request, build
from tests.helpers.queues import QueueState
from tests.helpers.waiting import wait_until
from tests.integration.admission.kept import Kept, Taken, Worker

TENANTS = ("acme", "globex")
CAP = 2
NAMES = ("sequential", "capped", "skip", "replace", "debounce", "both")
WEIGHTS = {
    "dispatch": 30, "add_foreign": 6, "fetch": 40, "settle": 34, "die": 2, "remove": 3, "sweep": 3,
}  # fmt: skip


@dataclass
class Job:
    """What the model knows of one."""

    id: str
    name: str
    tenant: str
    number: int
    in_order: bool
    placed: bool = True
    """A job of another producer passes the door when it is fetched."""
    begun: bool = False


@dataclass
class Model:
    """One fuzz."""

    definitions: dict[str, JobDefinition]
    queue: QueueState
    kept: Kept
    worker: Worker
    rng: random.Random
    jobs: dict[str, Job] = field(default_factory=dict)
    running: dict[str, Taken] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    latest: dict[tuple[str, str], int] = field(default_factory=dict)
    """Number of the last job of a sequence that has begun in order."""
    steps: list[str] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)

    def step(self) -> None:
        """Take one, and look whether all holds."""
        (name,) = self.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
        self.steps.append(name)
        getattr(self, f"_{name}")()
        self.check()

    def check(self) -> None:
        """Caps and sequences hold at every moment."""
        held = Counter(
            (self.jobs[job_id].name, self.jobs[job_id].tenant) for job_id in self.running
        )
        for (name, tenant), count in held.items():
            most = {"sequential": 1, "both": 1, "capped": CAP}.get(name)
            assert most is None or count <= most, f"{count} of {name} run for {tenant}"

    def drain(self) -> None:
        """End all that is left."""
        while self.running:
            self._settle(Complete())

        def empty() -> bool:
            door.sweep(0, 1000, 100, 100)
            while self._fetch():
                while self.running:
                    self._settle(Complete())
            return not self.queue.pending()

        wait_until(empty, description=f"all is done: {self.queue.counts()}", timeout=20)
        door.sweep(0, 1000, 100, 100)

    def _dispatch(self) -> None:
        name, tenant = self.rng.choice(NAMES), self.rng.choice(TENANTS)
        delay = 0.05 if name != "debounce" and self.rng.random() < 0.1 else None
        priority = self.rng.choice(["normal", "normal", "low", "high"])
        request = Request(tenant_id=tenant, delay=delay, priority=priority)  # type: ignore[arg-type]
        job = build(self.definitions[name], {}, request)
        before = self._open(name, tenant)
        decision = producer.add(job)
        self.outcomes[f"{name}: {decision.status}"] += 1
        if decision.status == "skipped":
            limit = {"skip": 1, "capped": CAP, "both": CAP}[name]
            assert before >= limit, f"{name} is skipped with {before} open"
            return
        if name == "skip":
            assert before == 0, f"another {before} are open"
        self.jobs[job.job_id] = Job(job.job_id, name, tenant, len(self.jobs), delay is None)

    def _open(self, name: str, tenant: str) -> int:
        """How many jobs of a key have come in and not finished."""
        return sum(
            1
            for job in self.jobs.values()
            if (job.name, job.tenant) == (name, tenant)
            and job.placed
            and job.id not in self.removed
            and job.id not in self.done
            and self.queue.exists(job.id)
        )

    def _add_foreign(self) -> None:
        name, tenant = self.rng.choice(NAMES), self.rng.choice(TENANTS)
        job = build(self.definitions[name], {}, Request(tenant_id=tenant))
        plain = producer.NewJob(
            job.lane, job.name, job.job_id, job.data, JobOptions(
                attempts=50, backoff=job.options.backoff
            ), job.timestamp_ms,
        )  # fmt: skip
        producer.add(plain)
        self.jobs[job.job_id] = Job(job.job_id, name, tenant, len(self.jobs), False, placed=False)

    def _fetch(self) -> bool:
        taken = self.worker.fetch()
        if taken is None:
            return False
        job = self.jobs[taken.id]
        assert taken.id not in self.running, f"{job.name} {job.id} runs twice"
        claim = self.worker.claim(taken)
        self.outcomes[f"{job.name} fetched: {claim.verdict}"] += 1
        job.placed = claim.verdict != "skipped"
        if claim.verdict == "skipped":
            self.worker.settle(taken)
            self.done.add(taken.id)
        elif claim.verdict == "run":
            self._begin(job)
            self.running[taken.id] = taken
        else:
            assert claim.verdict == "parked", claim
        return True

    def _begin(self, job: Job) -> None:
        if job.name in ("sequential", "both") and job.in_order and not job.begun:
            last = self.latest.get((job.name, job.tenant), -1)
            assert last < job.number, f"{job} begins after {last}"
            self.latest[job.name, job.tenant] = job.number
        job.begun = True

    def _settle(self, settlement: Settlement | None = None) -> None:
        if not self.running:
            return
        taken = self.running.pop(self.rng.choice(list(self.running)))
        if settlement is None:
            retry = Retry(self.rng.choice([1, 20, 60]), "once more")
            later = Postpone(self.rng.choice([1, 20]), json.dumps(taken.delivery.data))
            choices: list[Settlement] = [Complete()] * 3
            settlement = self.rng.choice([*choices, Fail("for good"), retry, later, GiveBack()])
        self.worker.settle(taken, settlement)
        if isinstance(settlement, Complete | Fail):
            self.done.add(taken.id)

    def _die(self) -> None:
        """The lock runs out, and the stalled check finds it."""
        if not self.running:
            return
        job_id = self.rng.choice(list(self.running))
        del self.running[job_id]
        self.queue.client.delete(self.queue.key(f"{job_id}:lock"))
        self.queue.client.sadd(self.queue.key("stalled"), job_id)
        self.queue.client.delete(self.queue.key("stalled-check"))
        assert job_id in self.worker.requeue_stalled()

    def _remove(self) -> None:
        """Another client removes a job that does not run."""
        waiting = [
            job_id
            for state in ("wait", "delayed", "prioritized")
            for job_id in self.queue.ids(state)
        ]
        if not waiting:
            return
        job_id = self.rng.choice(waiting)
        pipeline: Any = self.queue.client.pipeline()
        pipeline.lrem(self.queue.key("wait"), 0, job_id)
        pipeline.zrem(self.queue.key("delayed"), job_id)
        pipeline.zrem(self.queue.key("prioritized"), job_id)
        pipeline.delete(self.queue.key(job_id))
        pipeline.execute()
        self.removed.add(job_id)

    def _sweep(self) -> None:
        door.sweep(0, 100_000, 100, 100)
