"""Rows of deferred runs: right in the end in whatever order, and however often, events come."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from concurrent.futures import Future
from typing import Any

import pytest
from django.db import DEFAULT_DB_ALIAS
from django.utils import timezone

from kumiko_django.history import writer
from kumiko_django.history.batch import Batch, Ended
from kumiko_django.history.events import RunEnded, RunStarted
from kumiko_django.history.models import JobRun
from kumiko_django.history.record import decode, encode
from kumiko_django.history.recorder import Recorder
from kumiko_django.history.writer import write
from kumiko_django.types.ids import uuid7
from tests.unit.history.events import ended, line, started

pytestmark = pytest.mark.django_db(transaction=True)

LATER = timezone.now().replace(microsecond=0) + dt.timedelta(minutes=5)


class History:
    """One run that is deferred twice and then ends: its events, and their records."""

    def __init__(self, **end: Any) -> None:
        self.id = uuid7()
        begins = [timezone.now() + dt.timedelta(seconds=n) for n in range(3)]
        self.starts = [
            started(run_id=self.id, deferrals=n, started_at=begins[n], worker=f"w{n}")
            for n in range(3)
        ]
        first = self._deferral(1, progress={"done": 1}, object_ref="shop.order:1")
        self.ends = [first, self._deferral(2), ended(self.id, deferrals=2, **end)]

    def _deferral(self, number: int, **values: Any) -> RunEnded:
        return ended(
            self.id, status="deferred", final=False, deferrals=number, resume_at=LATER, **values
        )

    def events(self) -> list[RunStarted | RunEnded]:
        return [event for pair in zip(self.starts, self.ends, strict=True) for event in pair]

    def batch(self, *events: RunStarted | RunEnded) -> Batch:
        made = Batch()
        for event in events:
            if isinstance(event, RunStarted):
                made.add_start(event)
            else:
                made.add_end(self.ended(event))
        return made

    def ended(self, event: RunEnded) -> Ended:
        number = event.deferrals - (event.status == "deferred")
        return Ended(event, Future(), encode(self.starts[number], event))

    def row(self) -> JobRun:
        return JobRun.objects.get(id=self.id)


def put(batch: Batch) -> None:
    write(DEFAULT_DB_ALIAS, batch)


def test_step_by_step() -> None:
    """P98, B241: deferred with the time, running again, and the last invocation's duration."""
    run = History(duration_ms=77)
    seen = []
    for event in run.events():
        put(run.batch(event))
        row = run.row()
        seen.append((row.status, row.deferrals, row.resume_at, row.worker, row.finished_at is None))
    assert seen == [
        ("running", 0, None, "w0", True),
        ("deferred", 1, LATER, "w0", True),
        ("running", 1, None, "w1", True),
        ("deferred", 2, LATER, "w1", True),
        ("running", 2, None, "w2", True),
        ("completed", 2, None, "w2", False),
    ]
    row = run.row()
    assert row.duration_ms == 77
    assert row.started_at == run.starts[2].started_at
    assert (row.progress, row.object_ref) == ({"done": 1}, "shop.order:1")
    assert JobRun.objects.count() == 1


def test_all_in_one_batch() -> None:
    run = History()
    batch = run.batch(*run.events())
    put(batch)
    assert (run.row().status, run.row().deferrals) == ("completed", 2)
    assert all(turn.result is True for turn in batch.turns)


@pytest.mark.parametrize("seed", range(20))
def test_in_any_order_and_twice(seed: int) -> None:
    """P98: a record that is found late, or again, never takes a run back."""
    rng = random.Random(seed)
    run = History()
    events = [*run.events()[1:], *rng.choices(run.events()[1:], k=4)]
    rng.shuffle(events)
    put(run.batch(run.starts[0]))
    for event in events:
        put(run.batch(event))
    assert (run.row().status, run.row().deferrals, run.row().resume_at) == ("completed", 2, None)


@pytest.mark.parametrize("seed", range(10))
def test_without_any_start(seed: int) -> None:
    """Its workers have died; their records are found beside the queue, in whatever order."""
    rng = random.Random(seed)
    run = History(status="failed", error="no")
    events: list[RunEnded] = [*run.ends, *rng.choices(run.ends, k=2)]
    rng.shuffle(events)
    for event in events:
        put(run.batch(event))
    row = run.row()
    assert (row.status, row.error, row.deferrals, row.start) == ("failed", "no", 2, 1)


def test_a_late_deferral_does_not_take_a_run_back_that_goes_on() -> None:
    run = History()
    put(run.batch(run.starts[0], run.starts[1]))
    assert (run.row().status, run.row().deferrals) == ("running", 1)
    batch = run.batch(run.ends[0])
    put(batch)
    assert (run.row().status, run.row().deferrals) == ("running", 1)
    assert batch.turns[0].result is True, "it is part of the record"


def test_a_run_that_was_closed_stays_closed() -> None:
    run = History()
    put(run.batch(*run.events()[:2]))
    JobRun.objects.update(status="lost", resume_at=None)
    batch = run.batch(run.starts[1], run.ends[1])
    put(batch)
    assert (run.row().status, run.row().deferrals) == ("lost", 1)
    assert [turn.result for turn in batch.turns] == [False, False]


def test_the_next_run_closes_one_that_went_on_and_died() -> None:
    """Its worker died before it was on record that it goes on."""
    run = History()
    put(run.batch(*run.events()[:2]))
    following = started(start=3, losses=1)
    batch = Batch()
    batch.add_start(following)
    put(batch)
    assert [(row.status, row.start) for row in JobRun.objects.order_by("start")] == [
        ("lost", 1),
        ("running", 3),
    ]
    assert run.row().resume_at is None


@pytest.mark.parametrize("way", [writer.write, writer._write_apart])
@pytest.mark.parametrize("is_there", [True, False])
def test_the_next_run_does_not_take_one_for_lost_that_has_failed(way: Any, is_there: bool) -> None:
    """P77: the same batch has its end, as its job's next run has found it beside the queue; also
    where something stands in the way of writing all at once."""
    run = History(status="failed", final=False)
    if is_there:
        put(run.batch(*run.events()[:4]))
    batch = run.batch(run.ends[-1])
    batch.add_start(started(start=4, attempt=2, max_attempts=2))
    way(DEFAULT_DB_ALIAS, batch)
    assert run.row().status == "failed"
    assert batch.turns[0].result is True
    assert JobRun.objects.filter(status="running").count() == 1


def test_a_run_of_another_job_is_not_touched() -> None:
    """The id comes out of the job's data, where any client may have put it."""
    victim = started("victim")
    batch = Batch()
    batch.add_start(victim)
    put(batch)
    thief = History()
    thief.id = victim.run_id
    thief.starts = [started("thief", run_id=victim.run_id, deferrals=1)] * 3
    put(thief.batch(thief.starts[1], ended(victim.run_id, deferrals=1, status="failed")))
    row = JobRun.objects.get(id=victim.run_id)
    assert (row.status, row.queue_job_id, row.worker) == ("running", "victim", victim.worker)


def test_records_keep_what_a_deferral_has() -> None:
    run = History()
    for number, event in enumerate(run.ends):
        start, end, _ = decode(encode(run.starts[number], event))
        assert (start, end) == (run.starts[number], event)


def test_a_record_of_an_older_release_is_read() -> None:
    """Rolling deploy: it has none of the new words."""
    event = started()
    text = encode(event, ended(event.run_id))
    assert "deferrals" not in text
    assert "resume_at" not in text
    assert decode(text)[1].deferrals == 0


def test_the_recorder_tells_everybody() -> None:
    """Whoever waits for a deferral hears of it, also where the next event comes at once."""
    run, recorder = History(), Recorder()
    futures = []
    for event in run.events():
        if isinstance(event, RunStarted):
            recorder.run_started(event)
        else:
            recorder.log_lines(run.id, [line(event.deferrals + (event.status == "completed"))])
            record = run.ended(event).record
            futures.append(recorder.run_ended(event, record, awaited=False))
    recorder.run_found(run.ended(run.ends[0]).record)
    recorder.open()
    assert recorder.close(5)
    assert [future.result(1) for future in futures] == [True, True, True]
    assert recorder.has_room()
    assert (recorder._unwritten, recorder._characters) == (0, 0)
    assert run.row().status == "completed"
    assert len(set(itertools.chain(run.row().logs.values_list("number")))) == 3
