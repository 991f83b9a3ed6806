"""What tenants see is the latest that was said of a subject, in whatever order (P109)."""

from __future__ import annotations

import datetime as dt
import itertools
import random
import threading
from concurrent.futures import Future
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, connections

from kumiko_django.history import visible as visible_rows
from kumiko_django.history import writer
from kumiko_django.history.batch import Batch, Ended
from kumiko_django.history.events import RunEnded, RunStarted
from kumiko_django.history.models import JobRun
from kumiko_django.history.record import decode, encode
from kumiko_django.history.visible_models import TenantVisibleFailure, TenantVisibleRun
from kumiko_django.types.ids import uuid7
from kumiko_django.types.visible import Visible, subject_of
from tests.unit.history.events import CREATED, batch, ended, line, started

pytestmark = pytest.mark.django_db(transaction=True)

MINUTE = dt.timedelta(minutes=1)
NAME = "testapp:job:record"


def shown(
    minute: int, *, tenant_id: str = "acme", key: str = "app.failed", **values: Any
) -> Visible:
    """Of a run that began in this minute; both kinds are of the subject ``values``."""
    subject = subject_of(values, list(values))
    return Visible(tenant_id, NAME, CREATED + minute * MINUTE, subject, key, subject)


class Run:
    """The events of one run, as its worker has them, and others find them."""

    def __init__(self, minute: int, status: Any, *, final: bool = True, **values: Any) -> None:
        self.minute = minute
        visible = shown(minute, **values)
        job_id = f"job-{minute}"
        self.start: RunStarted = started(
            job_id, tenant_id=visible.tenant_id, started_at=visible.started_at, visible=visible
        )
        self.end: RunEnded = ended(
            self.start.run_id, status=status, final=final, visible=visible,
            error="E: a text that no tenant may see", finished_at=visible.started_at + MINUTE / 2,
        )  # fmt: skip

    @property
    def record(self) -> str:
        return encode(self.start, self.end, [line(1)])

    def whole(self) -> Batch:
        """As a worker writes a short run."""
        return Batch({self.start.run_id: self.start}, {self.start.run_id: self._ended(self.end)})

    def found(self) -> Batch:
        """As another worker writes what it has found beside the queue."""
        start, event, lines = decode(self.record)
        made = Batch()
        made.add_found(start, self._ended(event), lines)
        return made

    def begun(self) -> Batch:
        return batch(self.start)

    def _ended(self, event: RunEnded) -> Ended:
        return Ended(event, Future(), self.record)


def write(*batches: Batch) -> None:
    for each in batches:
        results = writer.write("default", each)
        assert set(results.values()) <= {True}


def failures() -> list[tuple[str, dict[str, Any], str, bool]]:
    rows = TenantVisibleFailure.objects.order_by("tenant_id", "subject_key")
    return [(row.tenant_id, row.subject, row.message_key, row.is_resolved) for row in rows]


def state(model: Any) -> list[dict[str, Any]]:
    rows = model.states if model is TenantVisibleFailure else model.objects
    return list(rows.order_by("pk").values())


def clear() -> None:
    for model in (JobRun, TenantVisibleRun):
        model.objects.all().delete()
    TenantVisibleFailure.states.all().delete()


def test_a_final_failure_is_seen_and_a_later_success_resolves_it() -> None:
    """P109, B184a; the record stays, and says when."""
    first, second = Run(0, "failed", id=7), Run(1, "completed", id=7)
    write(first.whole())
    assert failures() == [("acme", {"id": 7}, "app.failed", False)]
    row = TenantVisibleFailure.objects.get()
    assert (row.run_id, row.failed_at) == (first.start.run_id, first.end.finished_at)
    assert (row.job_name, row.resolved_at) == (NAME, None)
    write(second.whole())
    assert failures() == [("acme", {"id": 7}, "app.failed", True)]
    row = TenantVisibleFailure.objects.get()
    assert (row.resolved_at, row.success_run_id) == (second.end.finished_at, second.start.run_id)
    assert list(TenantVisibleFailure.objects.unresolved()) == []


def test_a_failure_that_is_retried_is_not_seen() -> None:
    """P109: only the last attempt's."""
    write(Run(0, "failed", final=False, id=7).whole())
    assert state(TenantVisibleFailure) == []
    assert TenantVisibleRun.objects.get().status == "failed"


def test_a_quarantined_job_has_failed() -> None:
    write(Run(0, "quarantined", id=7).whole())
    assert failures() == [("acme", {"id": 7}, "app.failed", False)]


@pytest.mark.parametrize("status", ["lost", "interrupted", "skipped", "cancelled", "deferred"])
def test_other_ends_say_nothing_of_failure_or_success(status: str) -> None:
    write(Run(0, "failed", id=7).whole(), Run(1, status, final=False, id=7).whole())
    assert failures() == [("acme", {"id": 7}, "app.failed", False)]
    assert TenantVisibleRun.objects.get().status == status


def test_tenants_jobs_and_subjects_are_apart() -> None:
    """P108, P109: a success resolves the failure of its own subject only."""
    write(
        Run(0, "failed", id=1).whole(),
        Run(1, "failed", id=1, tenant_id="globex").whole(),
        Run(2, "failed", id=1.0).whole(),
        Run(3, "failed", id=True, key="app.other").whole(),
        Run(4, "completed", id=1).whole(),
    )
    assert failures() == [
        ("acme", {"id": True}, "app.other", False),
        ("acme", {"id": 1.0}, "app.failed", False),
        ("acme", {"id": 1}, "app.failed", True),
        ("globex", {"id": 1}, "app.failed", False),
    ]
    found = TenantVisibleFailure.objects.of_subject(id=1)
    assert {row.tenant_id for row in found} == {"acme", "globex"}


@pytest.mark.parametrize(
    ("field", "value"),
    [("email", "ada@example.com"), ("a__b", "x" * 300), ("#", 7), ("with space", 1.5), ("t", True)],
)
def test_records_of_a_person_are_found_by_one_field(field: str, value: Any) -> None:
    """For erasure: beside other fields, in every tenant, and nobody else's."""
    other: Any = "another"
    write(
        Run(0, "failed", **{field: value, "n": 1}).whole(),
        Run(1, "failed", **{field: value, "tenant_id": "globex"}).whole(),
        Run(2, "failed", final=True, **{field: other}).whole(),
        Run(3, "failed", n=value).whole(),
    )
    for model in (TenantVisibleFailure, TenantVisibleRun):
        assert model.objects.naming(field, value).count() == 2
        model.objects.naming(field, value).delete()
        assert model.objects.count() == 2


def test_no_text_of_an_error_is_kept() -> None:
    """B184: in no column."""
    write(Run(0, "failed", id=7).whole())
    assert JobRun.objects.get().error.startswith("E: a text")
    for row in [*state(TenantVisibleFailure), *state(TenantVisibleRun)]:
        assert "no tenant may see" not in repr(row)


STORY = [
    Run(0, "failed", id=7),
    Run(1, "completed", id=7),
    Run(2, "failed", id=7, key="app.again"),
    Run(3, "failed", final=False, id=7),
]


@pytest.mark.parametrize("last", ["failed", "completed"])
def test_the_order_of_the_records_changes_nothing(last: str) -> None:
    """P109: forty orders, apart and together, from workers and from what is found, and again.

    A success may come on record before the failure that it resolves: another process writes it.
    """
    story = [*STORY, Run(4, last, id=7)]
    seen = []
    for number, order in enumerate(itertools.islice(itertools.permutations(story), 0, None, 3)):
        if number % 4 == 0:
            together = Batch()
            for run in order:
                together.starts.update(run.whole().starts)
                together.ends.update(run.whole().ends)
            write(together)
        else:
            write(*(run.found() if number % 2 else run.whole() for run in order))
        if number % 8 == 0:
            write(*(run.found() for run in order))
        row = TenantVisibleFailure.states.get()
        seen.append((row.is_resolved, row.run_id, row.message_key, row.success_run_id))
        latest = TenantVisibleRun.objects.get()
        assert (latest.run_id, latest.status) == (story[-1].start.run_id, last)
        clear()
    expected = story[4 if last == "failed" else 2]
    success = story[1 if last == "failed" else 4].start.run_id
    key = "app.failed" if last == "failed" else "app.again"
    assert set(seen) == {(last == "completed", expected.start.run_id, key, success)}


def test_a_success_alone_is_no_failure() -> None:
    """It is remembered, should an earlier failure come later; but nobody sees it."""
    write(Run(1, "completed", id=7).whole())
    assert not TenantVisibleFailure.objects.exists()
    assert TenantVisibleFailure.states.get().success_run_id is not None
    write(Run(0, "failed", id=7).found())
    assert failures() == [("acme", {"id": 7}, "app.failed", True)]


def test_the_latest_run_is_seen_from_its_start_on() -> None:
    """B184b: it runs, then it has ended; a late word of its start changes nothing."""
    run = Run(0, "completed", id=7)
    write(run.begun())
    row = TenantVisibleRun.objects.get()
    assert (row.status, row.run_id, row.finished_at) == ("running", run.start.run_id, None)
    assert (row.tenant_id, row.job_name, row.subject) == ("acme", NAME, {"id": 7})
    write(run.found())
    row = TenantVisibleRun.objects.get()
    assert (row.status, row.final, row.finished_at) == ("completed", True, run.end.finished_at)
    visible_rows.write_visible("default", [])
    again = Run(1, "failed", id=7)
    write(again.begun(), run.whole())
    assert TenantVisibleRun.objects.get().run_id == again.start.run_id


def test_a_deferred_run_goes_on_in_its_record() -> None:
    """B241: later than what other runs of the subject have come to in between."""
    run, other = Run(0, "deferred", final=False, id=7), Run(1, "completed", id=7)
    run_id = run.start.run_id
    put_off = ended(
        run_id, status="deferred", final=False, deferrals=1, resume_at=CREATED + 2 * MINUTE,
        visible=run.start.visible,
    )  # fmt: skip
    made = Batch()
    made.add_start(run.start)
    made.add_end(Ended(put_off, Future()))
    write(made)
    row = TenantVisibleRun.objects.get()
    assert (row.status, row.finished_at) == ("deferred", None)
    write(other.whole())
    assert TenantVisibleRun.objects.get().run_id == other.start.run_id
    goes_on = shown(2, id=7)
    made = Batch()
    made.add_start(
        started("job-0", run_id=run_id, deferrals=1, started_at=goes_on.started_at, visible=goes_on)
    )
    write(made)
    row = TenantVisibleRun.objects.get()
    assert (row.run_id, row.status) == (run_id, "running")
    made = Batch()
    made.add_end(Ended(ended(run_id, status="failed", deferrals=1, visible=goes_on), Future()))
    write(made)
    assert TenantVisibleRun.objects.get().status == "failed"
    assert failures() == [("acme", {"id": 7}, "app.failed", False)]


def test_an_end_that_does_not_stand_is_not_seen() -> None:
    """P78: the run had been taken for lost, and ran again elsewhere."""
    run = Run(0, "completed", id=7)
    write(Run(-1, "failed", id=7).whole(), run.begun())
    JobRun.objects.filter(id=run.start.run_id).update(status="lost", finished_at=CREATED)
    assert writer.write("default", run.whole()) == {run.start.run_id: False}
    assert failures() == [("acme", {"id": 7}, "app.failed", False)]
    assert TenantVisibleRun.objects.get().status == "running"


def test_what_stands_in_the_way_of_one_run_does_not_hide_others() -> None:
    """P32: each event for itself then."""
    bad, good = Run(0, "failed", id=7), Run(1, "failed", id=8)
    bad.start = started("bad", attempt=2**70, visible=bad.start.visible)
    bad.end = ended(bad.start.run_id, status="failed", visible=bad.start.visible)
    together = bad.whole()
    together.starts.update(good.whole().starts)
    together.ends.update(good.whole().ends)
    results = writer.write("default", together)
    assert results[good.start.run_id] is True
    assert isinstance(results[bad.start.run_id], Exception)
    assert failures() == [("acme", {"id": 8}, "app.failed", False)]


@pytest.mark.parametrize("value", ["\x00", "\ud800", "x" * 5_000, 2**70, "ä", 1e300])
def test_odd_values_are_stored(value: Any) -> None:
    """P32, P108: on every database, and the same from a record as from memory."""
    write(Run(0, "failed", id=value).whole())
    first = [(row["pk"] if "pk" in row else row["id"], row["subject"], row["subject_key"])
             for row in state(TenantVisibleFailure)]  # fmt: skip
    clear()
    write(Run(0, "failed", id=value).found(), Run(1, "failed", id=value).found())
    second = [(row["id"], row["subject"], row["subject_key"])
              for row in state(TenantVisibleFailure)]  # fmt: skip
    assert first == second


def test_many_subjects_at_once() -> None:
    """After an outage; in portions, and rows that are there are brought up to date."""
    runs = [Run(number, "failed", id=number) for number in range(450)]
    for half in (runs[:300], runs[150:]):
        together = Batch()
        for run in half:
            together.starts.update(run.whole().starts)
            together.ends.update(run.whole().ends)
        write(together)
    assert TenantVisibleFailure.objects.unresolved().count() == 450
    assert TenantVisibleRun.objects.count() == 450


def test_two_processes_write_the_same_subjects_at_once() -> None:
    """P109: from two connections, in different orders; nothing is lost and nothing hangs."""
    if connection.vendor == "sqlite":
        return  # it lets one of them write at a time
    failed = [Run(number, "failed", id=number) for number in range(40)]
    done = [Run(100 + number, "completed", id=number) for number in range(40)]
    random.Random(7).shuffle(failed)
    errors: list[BaseException] = []
    barrier = threading.Barrier(2)

    def work(runs: list[Run]) -> None:
        try:
            barrier.wait(10)
            for first in range(0, len(runs), 10):
                together = Batch()
                for run in runs[first : first + 10]:
                    together.starts.update(run.whole().starts)
                    together.ends.update(run.whole().ends)
                write(together)
        except BaseException as error:  # noqa: BLE001  (told below)
            errors.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work, args=(runs,)) for runs in (failed, done)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors
    assert TenantVisibleFailure.objects.count() == 40
    assert TenantVisibleFailure.objects.unresolved().count() == 0


def test_a_row_that_is_pruned_in_between_is_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the insert that finds it there, and the lock."""
    write(Run(0, "failed", id=7).whole(), Run(1, "completed", id=7).whole())
    later = Run(2, "failed", id=7, key="app.again")
    insert = TenantVisibleFailure.states.all().__class__.bulk_create
    tries: list[int] = []

    def deleted_after(self: Any, rows: Any, **options: Any) -> Any:
        made = insert(self, rows, **options)
        if self.model is TenantVisibleFailure:
            tries.append(len(rows))
            if len(tries) == 1:
                TenantVisibleFailure.states.all().delete()
        return made

    monkeypatch.setattr(TenantVisibleFailure.states.all().__class__, "bulk_create", deleted_after)
    write(later.whole())
    assert tries == [1, 1]
    assert failures() == [("acme", {"id": 7}, "app.again", False)]


def test_ids_of_rows_are_those_of_their_subjects() -> None:
    """One record for each, also where two processes insert it: the key is made of the subject."""
    write(Run(0, "failed", id=7).whole())
    first = TenantVisibleFailure.states.get().id
    clear()
    write(Run(5, "completed", id=7).whole())
    assert TenantVisibleFailure.states.get().id == first
    assert isinstance(first, UUID)
    assert first != uuid7()
