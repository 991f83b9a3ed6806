"""Erasing a person from the history: what goes, what stays, what is left for later (issue 5, 5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from kumiko_django import JobDefinition, VisibleFailure, VisibleRun
from kumiko_django.definitions.subjects import ERASED, is_about, names_of
from kumiko_django.history.erase import Portion, erase
from kumiko_django.history.models import JobRun, JobRunLog
from kumiko_django.history.visible_models import TenantVisibleFailure, TenantVisibleRun
from kumiko_django.history.writer import write
from kumiko_django.types.ids import uuid7
from kumiko_django.types.visible import Visible, subject_of
from tests.unit.history.events import batch, ended, line, started

pytestmark = pytest.mark.django_db

NAME = "testapp:job:remind"
SECRET = "Mia Maier"
PERSONAL: dict[str, Any] = {
    "result": {"sent_to": SECRET}, "progress": {"message": SECRET}, "error": SECRET,
    "traceback": SECRET, "object_ref": f"crm.customer:{SECRET}",
}  # fmt: skip


def nothing(payload: Any, ctx: Any) -> None: ...


DEFINITION = JobDefinition(
    handler=nothing, name="remind", app_label="testapp",
    subject_fields=("customer_id", "customer.id", "guests.id"), aliases=("remind-old",),
    tenant_visible_failure=VisibleFailure("reminding.failed", subject=("customer_id",)),
    tenant_visible_run=VisibleRun(subject=("customer_id", "n")),
)  # fmt: skip
JOBS = names_of([DEFINITION])


def run_of(payload: Any, end: dict[str, Any] | None = None, **values: Any) -> UUID:
    """A run on record with two log lines; by default one that has ended."""
    start = started(
        **{"job_name": NAME, "queue_job_id": str(uuid7()), "payload": payload, **values}
    )
    ends = [ended(start.run_id, **PERSONAL)] if end is None else []
    lines = [(start.run_id, line(n, f"to {SECRET}", name=SECRET)) for n in (1, 2)]
    write("default", batch(start, ends=tuple(ends), logs=tuple(lines)))
    if end:
        JobRun.objects.filter(pk=start.run_id).update(**end)
    return start.run_id


def erased(subject: str = "7", **options: Any) -> Portion:
    given = {"tenant_id": None, "dry_run": False, "batch_size": 100, **options}
    portions = list(erase(subject, JOBS, **given))
    return Portion(
        runs=sum(p.runs for p in portions),
        logs=sum(p.logs for p in portions),
        unended=sum(p.unended for p in portions),
        seen=sum(p.seen for p in portions),
    )


def says(run_id: UUID) -> str:
    """All that the history has of a run, as one text."""
    row = JobRun.objects.filter(pk=run_id).values().get()
    return f"{row} {list(JobRunLog.objects.filter(run_id=run_id).values())}"


@pytest.fixture(autouse=True)
def others() -> Iterator[dict[UUID, str]]:
    """Runs that are another's, or of a job that says nothing about persons."""
    ids = [
        run_of({"customer_id": 8, "n": 7}), run_of({"customer_id": "77"}), run_of({"id": 7}),
        run_of({"customer_id": True}), run_of(None), run_of({"customer_id": {"customer_id": 7}}),
        run_of({"customer_id": 7}, job_name="testapp:job:other"),
    ]  # fmt: skip
    before = {run_id: says(run_id) for run_id in ids}
    yield before
    assert {run_id: says(run_id) for run_id in ids} == before, "others' runs are as they were"


THEIRS: dict[str, Any] = {
    "number": {"customer_id": 7}, "text": {"customer_id": "7", "note": SECRET},
    "within": {"customer": {"id": 7, "name": SECRET}}, "list": {"customer_id": [8, 7]},
    "list of objects": {"guests": [{"id": 1}, {"id": "7", "name": SECRET}]},
}  # fmt: skip


@pytest.mark.parametrize("name", THEIRS)
def test_nothing_of_the_person_is_left(name: str) -> None:
    run_id = run_of(THEIRS[name])
    before = JobRun.objects.get(pk=run_id)
    assert erased() == Portion(runs=1, logs=2)
    run = JobRun.objects.get(pk=run_id)
    assert SECRET not in says(run_id)
    assert run.payload == run.result == run.progress == ERASED
    assert run.error == run.traceback == run.object_ref == ERASED
    lines = JobRunLog.objects.filter(run=run)
    assert [(each.message, each.data) for each in lines] == [(ERASED, {})] * 2
    for kept in ("status", "tenant_id", "started_at", "finished_at", "duration_ms", "queue_job_id"):
        assert getattr(run, kept) == getattr(before, kept)


def test_what_was_empty_stays_empty() -> None:
    run_id = run_of({"customer_id": 7}, {"status": "completed"})
    erased()
    run = JobRun.objects.get(pk=run_id)
    assert (run.result, run.progress, run.error, run.traceback) == (None, None, "", "")


def test_to_repeat_it_changes_nothing() -> None:
    run_id = run_of({"customer_id": 7})
    erased()
    after = says(run_id)
    assert erased() == Portion()
    assert says(run_id) == after


def test_a_dry_run_counts_the_same_and_changes_nothing() -> None:
    run_id = run_of({"customer_id": 7})
    before = says(run_id)
    assert erased(dry_run=True) == Portion(runs=1, logs=2)
    assert says(run_id) == before
    assert erased() == Portion(runs=1, logs=2)


@pytest.mark.parametrize("status", ["running", "deferred"])
def test_a_run_that_has_not_ended_is_left_and_told_of(status: str) -> None:
    """Its end would bring back what was taken, and could not be found any more."""
    run_id = run_of({"customer_id": 7}, {"status": status})
    before = says(run_id)
    assert erased() == Portion(unended=1)
    assert says(run_id) == before
    JobRun.objects.filter(pk=run_id).update(status="failed", error=SECRET)
    assert erased() == Portion(runs=1, logs=2)
    assert SECRET not in says(run_id)


def test_what_a_lost_run_wrote_later_goes_with_the_next_erasure() -> None:
    """A worker that was given up for lost may live, and write its end."""
    run_id = run_of({"customer_id": 7}, {"status": "lost"})
    erased()
    JobRun.objects.filter(pk=run_id).update(**PERSONAL, status="completed")
    JobRunLog.objects.filter(run_id=run_id, number=2).update(message=SECRET, data={"a": SECRET})
    assert erased("somebody else") == Portion(logs=1)
    assert SECRET not in says(run_id)


def test_a_tenant_has_its_own_persons() -> None:
    here, there = (run_of({"customer_id": 7}, tenant_id=name) for name in ("acme", "globex"))
    before = says(there)
    assert erased(tenant_id="acme").runs == 1
    assert (says(there), SECRET in says(here)) == (before, False)
    assert erased().runs == 1


@pytest.mark.parametrize("name", ["testapp:job:remind-old", "_perTenant:testapp:job:remind"])
def test_runs_under_a_former_name_and_of_wrappers_are_found(name: str) -> None:
    run_of({"customer_id": 7}, job_name=name)
    assert erased().runs == 1


def test_what_tenants_see_goes_too() -> None:
    """Its subject is the person."""
    for customer in (7, "7", 8):
        payload = {"customer_id": customer, "n": 1}
        start = started(job_name=NAME, queue_job_id=str(uuid7()), payload={"n": 1})
        visible = Visible(
            "acme", NAME, start.started_at,
            failure=subject_of(payload, ("customer_id",)), message_key="reminding.failed",
            run=subject_of(payload, ("customer_id", "n")),
        )  # fmt: skip
        end = ended(start.run_id, status="failed", visible=visible)
        write("default", batch(start, ends=(end,)))
    assert TenantVisibleFailure.objects.count() == TenantVisibleRun.objects.count() == 3
    assert erased(dry_run=True) == erased() == Portion(seen=4)
    left = [model.objects.get().subject for model in (TenantVisibleFailure, TenantVisibleRun)]
    assert left == [{"customer_id": 8}, {"customer_id": 8, "n": 1}]


def test_each_step_looks_at_so_many_runs_and_no_more() -> None:
    """Short transactions: a step writes to its own runs only, by their keys."""
    for _ in range(7):
        run_of({"customer_id": 7})
    given: dict[str, Any] = {"tenant_id": None, "dry_run": False, "batch_size": 5}
    with CaptureQueriesContext(connection) as queries:
        portions = list(erase("7", {NAME: DEFINITION}, **given))
    assert sum(p.runs for p in portions) == 7
    assert max(p.runs for p in portions) <= 5
    looked = [q["sql"] for q in queries if q["sql"].startswith("SELECT") and "LIMIT 5" in q["sql"]]
    assert len(looked) == 4, "13 runs in steps of 5, and one that finds no more"


def test_values_are_compared_as_text() -> None:
    assert is_about({"customer_id": 7}, DEFINITION, "7")
    for other in ("07", "7.0", "True", "", "None"):
        assert not is_about({"customer_id": [7, True, None, 7.0]}, DEFINITION, other)
    assert not is_about("[[erased]]", DEFINITION, "[[erased]]")
