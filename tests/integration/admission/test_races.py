"""Fifty dispatchers at once, from several processes (issue 4, must hold)."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import redis

from kumiko_django import dispatch
from kumiko_django.history.models import JobRun
from tests.app.guarded import CAP
from tests.app.models import Effect
from tests.helpers.processes import ROOT, child_environment
from tests.helpers.queues import QueueState
from tests.helpers.valkey import Valkey
from tests.helpers.waiting import wait_until
from tests.integration.admission.kept import Kept
from tests.integration.worker.host_thread import StartHost

MEETING = 10
PROCESSES, THREADS = 5, 10
DISPATCHERS = PROCESSES * THREADS
CODE = f"""
import json, sys, threading
import django
django.setup()
from kumiko_django import dispatch
def one(name, number, start, answers):
    start.wait()
    made = dispatch(name, {{"number": number}}, tenant_id="acme")
    answers.append([made.status, made.job_id, number])
print("ready", flush=True)
for line in sys.stdin:
    start, answers = threading.Barrier({THREADS}), []
    first = int(sys.argv[1]) * {THREADS}
    threads = [
        threading.Thread(target=one, args=(line.strip(), first + n, start, answers))
        for n in range({THREADS})
    ]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(json.dumps(answers), flush=True)
"""


class Answer(NamedTuple):
    """What a dispatcher was told, and the number it has sent."""

    status: str
    job_id: str
    number: int


class Dispatchers:
    """The processes."""

    def __init__(self) -> None:
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-c", CODE, str(number)],
                cwd=ROOT,
                env=child_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(PROCESSES)
        ]
        for process in self._processes:
            assert self._line(process) == "ready\n"

    def dispatch(self, name: str) -> list[Answer]:
        """Let all of them dispatch a job."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"testapp:job:{name}\n")
            process.stdin.flush()
        answers: list[Any] = []
        for process in self._processes:
            answers += json.loads(self._line(process))
        assert len(answers) == DISPATCHERS
        return [Answer(*answer) for answer in answers]

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()

    @staticmethod
    def _line(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline()


@pytest.fixture
def dispatchers(transactional_db: None, queue_prefix: str) -> Iterator[Dispatchers]:
    made = Dispatchers()
    yield made
    made.close()


@pytest.mark.once
def test_however_closely_they_meet(own_valkey: Valkey, queue_prefix: str) -> None:
    """P01: nothing is decided before the step that adds. All dispatchers have asked Redis when it
    goes on with the first of them; until then it answers those who only look."""
    for name, admitted in (("guarded-skip", 1), ("guarded-cap", CAP)):
        job = f"testapp:job:{name}"
        dispatch(job, {}, tenant_id="globex")  # the script is known from here on
        statuses: list[str] = []

        def one(job: str = job, statuses: list[str] = statuses) -> None:
            statuses.append(dispatch(job, {}, tenant_id="acme").status)

        with own_valkey.client() as client:
            client.execute_command("CLIENT", "PAUSE", "60000", "WRITE")
            threads = [threading.Thread(target=one) for _ in range(MEETING)]
            for thread in threads:
                thread.start()
            wait_until(lambda: at_the_door(client) == MEETING, description="all are there")
            client.execute_command("CLIENT", "UNPAUSE")
            for thread in threads:
                thread.join()
        assert Counter(statuses) == {"queued": admitted, "skipped": MEETING - admitted}, name


def at_the_door(client: redis.Redis) -> int:
    """How many clients wait to be let on."""
    return sum("b" in one["flags"] for one in client.client_list())


def test_each_mode_holds(
    dispatchers: Dispatchers, queue: QueueState, kept: Kept, host: StartHost
) -> None:
    """B233, P01, P05, P06: check and reservation are one step. ``skip`` admits one, a cap of N
    exactly N, ``replace`` leaves the last, ``debounce`` runs once with the last payload."""
    for name, admitted, refusal in (
        ("guarded-skip", 1, "skipped"),
        ("guarded-cap", CAP, "skipped"),
        ("guarded-throttle", 1, "throttled"),
    ):
        before = set(queue.wait)
        answers = dispatchers.dispatch(name)
        counts = Counter(answer.status for answer in answers)
        assert counts == {"queued": admitted, refusal: DISPATCHERS - admitted}, name
        accepted = {answer.job_id for answer in answers if answer.status == "queued"}
        assert set(queue.wait) - before == accepted, name

    before = set(queue.wait)
    answers = dispatchers.dispatch("guarded-replace")
    assert Counter(answer.status for answer in answers) == {
        "queued": 1, "replaced": DISPATCHERS - 1
    }  # fmt: skip
    assert set(queue.wait) - before == {_last_added(queue)}

    answers = dispatchers.dispatch("guarded-debounce")
    host("worker")
    last = _last_added(queue)
    wait_until(
        lambda: JobRun.objects.filter(queue_job_id=last, status="completed").exists(),
        description="the quiet time is over, and it has run",
    )
    runs = JobRun.objects.filter(job_name="testapp:job:guarded-debounce")
    assert [run.queue_job_id for run in runs] == [last]
    (number,) = [answer.number for answer in answers if answer.job_id == last]
    effects = Effect.objects.filter(key="ran", job_id=last)
    assert [effect.value for effect in effects] == [{"number": number}]
    wait_until(lambda: not queue.pending(), description="all is done")
    assert kept.left() == [f"{kept.base}window:testapp:job:guarded-throttle:acme"]


def _last_added(queue: QueueState) -> str:
    """By the queue's own record, the last one that came in."""
    events = queue.client.xrevrange(queue.key("events"), count=4 * DISPATCHERS)
    added = (fields["jobId"] for _, fields in events if fields["event"] == "added")
    return str(next(added))
