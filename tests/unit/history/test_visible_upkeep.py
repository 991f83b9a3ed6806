"""What tenants see goes with the history, and does not run for ever where a run was lost."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.utils import timezone

from kumiko_django.history import retention, visible_upkeep
from kumiko_django.history.models import JobRun
from kumiko_django.history.visible_models import TenantVisibleFailure, TenantVisibleRun
from kumiko_django.types.ids import uuid7
from tests.unit.history.admin_rows import id_at, make_run

pytestmark = pytest.mark.django_db(transaction=True)

NOW = timezone.now().replace(microsecond=0)
DAY = dt.timedelta(days=1)
AGE = 30 * DAY


def run(age: dt.timedelta, *, ended: dt.timedelta | None = None, **values: Any) -> TenantVisibleRun:
    started_at = NOW - age
    key = f"1:{TenantVisibleRun.objects.count()}"
    finished_at = None if ended is None else NOW - ended
    status = "running" if ended is None else "completed"
    return TenantVisibleRun.objects.create(
        **{
            "id": uuid7(), "tenant_id": "acme", "job_name": "a:job:b", "subject_key": key,
            "run_id": id_at(started_at), "status": status, "started_at": started_at,
            "finished_at": finished_at, **values,
        }
    )  # fmt: skip


def failure(
    age: dt.timedelta, *, resolved: dt.timedelta | None = None, **values: Any
) -> TenantVisibleFailure:
    started_at = NOW - age
    key = f"1:{TenantVisibleFailure.states.count()}"
    row: TenantVisibleFailure = TenantVisibleFailure.states.create(
        **{
            "id": uuid7(), "tenant_id": "acme", "job_name": "a:job:b", "subject_key": key,
            "run_id": id_at(started_at), "started_at": started_at, "failed_at": started_at,
            "message_key": "a.b", "resolved_at": None if resolved is None else NOW - resolved,
            **values,
        }
    )  # fmt: skip
    return row


def yes(seconds: float = 0.0) -> bool:
    return True


def test_what_is_old_goes_with_the_history() -> None:
    """Ended runs and resolved failures; in portions of one, so that all that stays is passed."""
    kept = [
        run(29 * DAY, ended=29 * DAY), run(40 * DAY), run(40 * DAY, ended=20 * DAY),
        failure(40 * DAY), failure(40 * DAY, resolved=20 * DAY), failure(DAY, resolved=DAY / 2),
    ]  # fmt: skip
    for _ in range(3):
        run(41 * DAY, ended=31 * DAY)
        failure(41 * DAY, resolved=31 * DAY)
    done = retention.prune(AGE, now=NOW, batch_size=1)
    assert (done.seen, done.finished) == (6, True)
    left = {*TenantVisibleRun.objects.all(), *TenantVisibleFailure.states.all()}
    assert left == set(kept)


def test_a_stop_ends_it_between_two_portions() -> None:
    """P93."""
    for _ in range(4):
        run(41 * DAY, ended=31 * DAY)
    answers = iter([True, False])
    done = retention.prune(AGE, now=NOW, batch_size=1, go_on=lambda seconds: next(answers))
    assert (done.seen, done.finished, TenantVisibleRun.objects.count()) == (2, False, 2)


def test_successes_alone_are_forgotten_after_a_day() -> None:
    """Also where ``HISTORY_AGE`` keeps all: nobody has ever seen them."""
    never: dict[str, Any] = {"run_id": None, "started_at": None, "failed_at": None}
    failure(DAY, success_run_id=id_at(NOW - 2 * DAY), **never)
    kept = [
        failure(DAY, success_run_id=id_at(NOW - DAY / 2), **never),
        failure(3 * DAY, success_run_id=id_at(NOW - 2 * DAY), resolved=2 * DAY),
    ]
    visible_upkeep.look_after(NOW, yes)
    assert set(TenantVisibleFailure.states.all()) == set(kept)


@pytest.mark.parametrize(("status", "final"), [("lost", False), ("cancelled", True)])
def test_a_run_that_was_closed_by_others_does_not_go_on(status: str, final: bool) -> None:
    """It was found to be lost, say: the writer of a run's end has not been there."""
    made = make_run(status=status, final=final, started_at=NOW - DAY)
    lost = run(DAY, run_id=made.id)
    visible_upkeep.look_after(NOW, yes)
    lost.refresh_from_db()
    assert (lost.status, lost.final) == (status, final)
    assert lost.finished_at == made.finished_at


def test_a_run_whose_record_is_gone_was_lost() -> None:
    gone, runs = run(DAY), run(DAY, run_id=make_run(status="running").id)
    deferred = run(DAY, status="deferred", run_id=make_run(status="deferred").id)
    visible_upkeep.look_after(NOW, yes)
    for row in (gone, runs, deferred):
        row.refresh_from_db()
    assert (gone.status, gone.finished_at) == ("lost", NOW)
    assert (runs.status, deferred.status) == ("running", "deferred")
    assert JobRun.objects.count() == 2


def test_what_has_changed_since_it_was_read_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer may have come in between: a later run of the subject has begun."""
    row = run(DAY)
    end_one = visible_upkeep._end_one

    def after_the_writer(*arguments: Any) -> None:
        TenantVisibleRun.objects.filter(pk=row.pk).update(run_id=uuid7(), started_at=NOW)
        end_one(*arguments)

    monkeypatch.setattr(visible_upkeep, "_end_one", after_the_writer)
    visible_upkeep.look_after(NOW, yes)
    row.refresh_from_db()
    assert (row.status, row.started_at) == ("running", NOW)
