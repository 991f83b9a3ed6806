"""Killing workers at random moments under a steady load. What is asked of every job afterwards
stands in ``audit``.

The seed decides the jobs, the victims and the pauses between kills; what a victim is doing when it
dies is up to the machine.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kumiko_django import JobDefinition, dispatch
from tests.chaos import SETTINGS
from tests.chaos.audit import Expected, Findings, audit
from tests.chaos.evidence import Evidence
from tests.chaos.jobs import JOBS
from tests.helpers.processes import RunJobs
from tests.helpers.waiting import wait_until

TENANTS = ("acme", "globex", "initech")
OFTEN = {
    "work": 4, "work-async": 4, "fails-once": 1, "fails-once-later": 1, "fails-once-async": 1,
}  # fmt: skip
"""How often which job is dispatched."""
DRAIN_SECONDS = 60.0


@dataclass(frozen=True)
class Plan:
    """How much of it.

    Attributes:
        kills: How many workers are killed, one after the other.
        seed: Of the load and of the killing.
        workers: How many run at a time.
        concurrency: How many jobs each of them runs at a time.
        backlog: How many jobs wait at most; the load is as high as the workers can bear.
        shortest, longest: Seconds between two kills.
    """

    kills: int
    seed: int
    workers: int = 3
    concurrency: int = 8
    backlog: int = 40
    shortest: float = 0.1
    longest: float = 1.2


@dataclass
class Killed:
    """What was done, and what was found."""

    plan: Plan
    seconds: float = 0.0
    deaths: dict[int, float] = field(default_factory=dict)
    """When each process was killed, by its id; seconds since 1970."""
    findings: Findings = field(default_factory=Findings)

    def report(self) -> str:
        """Give the figures, for people."""
        found = self.findings
        per_second = found.jobs / self.seconds
        recovery = f"{found.slowest_recovery:.1f} s" if found.recoveries else "none to see"
        return (
            f"kills {self.plan.kills} (seed {self.plan.seed}) in {self.seconds:.0f} s; "
            f"jobs {found.jobs}, {per_second:.0f} a second; rows {found.rows}, of these "
            f"lost {found.lost} ({found.lost_by_living} by workers that were not killed), "
            f"failed {found.failed}; handlers called again {found.called_again}; "
            f"slowest recovery {recovery}"
        )


def run(plan: Plan, logs: Path, evidence: Evidence) -> Killed:
    """Kill workers under load, wait until all is done, and look at every job.

    Args:
        plan: How much.
        logs: The folder for what the workers write.
        evidence: Looks at the queue and the rows.
    """
    killed, began = Killed(plan), time.monotonic()
    rng = random.Random(f"{plan.seed} victims")
    with Crew(plan, logs) as crew:
        with Load(plan, evidence) as load:
            for _ in range(plan.kills):
                crew.wait_for_two()
                # The one wait that is for nothing: for a moment that nobody has chosen.
                time.sleep(rng.uniform(plan.shortest, plan.longest))
                killed.deaths[crew.kill_one(rng)] = time.time()
                load.check()
        evidence.wait_all_done(DRAIN_SECONDS)
        killed.seconds = time.monotonic() - began
        crew.stop()
    killed.findings = audit(load.expected, evidence, killed.deaths)
    return killed


class Crew:
    """The workers: as many as planned, another one for each that is killed."""

    def __init__(self, plan: Plan, logs: Path) -> None:
        self._plan = plan
        self._logs = logs
        self._started = 0
        self._starting: list[RunJobs] = []
        self._consuming: list[RunJobs] = []

    def __enter__(self) -> Crew:
        for _ in range(self._plan.workers):
            self._start()
        return self

    def __exit__(self, *_: object) -> None:
        # Only those that may be alive: the number of one that is gone may be another's by now.
        for worker in (*self._starting, *self._consuming):
            worker.close()

    def wait_for_two(self) -> None:
        """Wait until one can die and another goes on."""
        wait_until(
            lambda: len(self._now_consuming()) > 1,
            description="two workers consume", timeout=60,
        )  # fmt: skip

    def kill_one(self, rng: random.Random) -> int:
        """Kill one of those that consume, start another; give the process id of the victim."""
        victim = rng.choice(self._now_consuming())
        self._consuming.remove(victim)
        victim.kill()
        self._start()
        return victim.pid

    def stop(self) -> None:
        """End the workers in order."""
        for worker in self._starting:
            worker.wait_ready()
        for worker in self._now_consuming():
            worker.terminate()
        for worker in self._consuming:
            assert worker.wait() == 0, worker.output()

    def _start(self) -> None:
        self._started += 1
        self._starting.append(
            RunJobs(
                "worker",
                self._logs / f"worker-{self._started}.log",
                arguments=["--concurrency", str(self._plan.concurrency)],
                env={"DJANGO_SETTINGS_MODULE": SETTINGS},
            )
        )

    def _now_consuming(self) -> list[RunJobs]:
        for worker in [each for each in self._starting if "consuming lane" in each.output()]:
            self._starting.remove(worker)
            self._consuming.append(worker)
        for worker in (*self._starting, *self._consuming):
            assert worker.running, f"ended by itself:\n{worker.output()}"
        return self._consuming


class Load:
    """Dispatches jobs from a thread of its own for the length of a ``with`` block."""

    def __init__(self, plan: Plan, evidence: Evidence) -> None:
        self.expected: dict[str, Expected] = {}
        self._plan = plan
        self._evidence = evidence
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="load")

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.check()

    def check(self) -> None:
        """Raise what has ended the load before its time."""
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        rng = random.Random(f"{self._plan.seed} load")
        try:
            while not self._stop.wait(0.01):
                missing = self._plan.backlog - self._evidence.waiting()
                for _ in range(missing):
                    self._dispatch(rng)
        except BaseException as error:  # noqa: BLE001  (raised again where it is looked for)
            self._error = error

    def _dispatch(self, rng: random.Random) -> None:
        job, payload = draw(rng)
        dispatched = dispatch(job, payload, tenant_id=rng.choice(TENANTS))
        self.expected[dispatched.job_id] = Expected(
            fails_once=bool(job.retries), lines=payload["lines"]
        )


def draw(rng: random.Random) -> tuple[JobDefinition, dict[str, Any]]:
    """Pick a job: half of them do nothing, the others take 5 to 200 ms; every fourth logs."""
    name = rng.choices(list(OFTEN), list(OFTEN.values()))[0]
    ms = 0 if rng.random() < 0.5 else round(rng.uniform(5, 200))
    return JOBS[name], {"ms": ms, "lines": rng.randint(1, 6) if rng.random() < 0.25 else 0}
