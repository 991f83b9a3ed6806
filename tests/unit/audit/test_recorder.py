"""What becomes of a use of an escape hatch: counted, stored, told; and what if that cannot be."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError, connection
from django.db.models import Model
from pytest_django import Settings

from kumiko_django import Cron, JobDefinition, current_tenant_id, registry
from kumiko_django.audit import recorder as room
from kumiko_django.audit import windows
from kumiko_django.audit.models import EscapeHatchUse
from kumiko_django.audit.recorder import HatchRecorder
from kumiko_django.observability import names
from kumiko_django.observability.memory import InMemoryMeter
from kumiko_django.signals import escape_hatch_used
from kumiko_django.types.hatches import HatchUse, report_use
from kumiko_django.types.ids import SYSTEM, SYSTEM_USER_ID, uuid7
from tests.helpers.fixtures import DatabaseAway
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

RUN, OTHER_RUN = uuid7(), uuid7()


def use(**values: Any) -> HatchUse:
    given: dict[str, Any] = {
        "kind": "unsafe_raw", "reason": "a report", "tenant_id": "acme",
        "actor_id": SYSTEM_USER_ID, "caller_id": "7", "job_name": "testapp:job:record",
        "run_id": RUN, "detail": "ctx.db.unsafe_raw()",
    }  # fmt: skip
    return HatchUse(**given | values)


@pytest.fixture
def told() -> Iterator[list[dict[str, Any]]]:
    """What receivers of the signal have heard, with the tenant in whose scope that was."""
    heard: list[dict[str, Any]] = []

    def receive(**arguments: Any) -> None:
        heard.append(arguments | {"scope": current_tenant_id()})

    escape_hatch_used.connect(receive)
    yield heard
    escape_hatch_used.disconnect(receive)


class Router:
    """A host's router that fails: what it stands before is away for as long as it says."""

    def __init__(self) -> None:
        self.is_away = True

    def db_for_write(self, model: type[Model], **hints: Any) -> None:
        if self.is_away and model is EscapeHatchUse:
            raise OperationalError("no database will take it")


@pytest.fixture
def sink(settings: Settings) -> Router:
    """A sink that is down, until the test says otherwise; it fails at once on every database."""
    router = Router()
    settings.DATABASE_ROUTERS = [router]
    return router


def stored() -> list[tuple[str, UUID | None, int]]:
    rows = EscapeHatchUse.objects.order_by("id")
    return list(rows.values_list("reason", "run_id", "count"))


def test_a_use_is_stored_with_all_that_is_known_of_it_and_told(
    hatches: HatchRecorder, told: list[dict[str, Any]]
) -> None:
    """B151: job, tenant, actor, caller, kind, reason; in a row and in the signal."""
    hatches.note(use())
    assert hatches.flush(20)

    row = EscapeHatchUse.objects.get()
    known = use()
    for name in ("kind", "reason", "tenant_id", "actor_id", "caller_id", "job_name", "detail"):
        assert getattr(row, name) == getattr(known, name)
    assert (row.run_id, row.count, row.refused) == (RUN, 1, False)
    [signal] = told
    assert signal["use"] == known
    assert (signal["count"], signal["scope"]) == (1, "acme")
    assert signal["sender"] is registry.get("testapp:job:record")


def test_uses_that_are_alike_are_one_record_a_run(
    hatches: HatchRecorder, told: list[dict[str, Any]]
) -> None:
    """B140, B152: one window for a run, whoever reports; entries carry the run."""
    for _ in range(3):
        hatches.note(use())
    hatches.note(use(run_id=OTHER_RUN))
    assert hatches.flush(20)
    hatches.note(use(detail="ctx.db.unsafe_raw() again"))
    assert hatches.flush(20)

    assert stored() == [("a report", RUN, 4), ("a report", OTHER_RUN, 1)]
    details = EscapeHatchUse.objects.get(run_id=RUN).detail
    assert details == "ctx.db.unsafe_raw(); ctx.db.unsafe_raw() again"
    assert len(told) == 2


@pytest.mark.parametrize(
    "other",
    [
        {"kind": "global_writes"}, {"reason": "another"}, {"tenant_id": "globex"},
        {"actor_id": "8"}, {"caller_id": None}, {"job_name": ""}, {"refused": True},
    ],
    ids=lambda other: next(iter(other)),
)  # fmt: skip
def test_uses_that_differ_are_two(hatches: HatchRecorder, other: dict[str, Any]) -> None:
    """B151: one record for each kind, reason, tenant, actor, caller and job."""
    hatches.note(use())
    hatches.note(use(**other))
    assert hatches.flush(20)

    assert [count for _, _, count in stored()] == [1, 1]


def test_the_end_of_a_run_ends_its_window_and_writes_at_once(
    hatches: HatchRecorder, monkeypatch: pytest.MonkeyPatch, told: list[dict[str, Any]]
) -> None:
    """B140: nothing waits for longer than the run."""
    monkeypatch.setattr(room, "FIRST_DELAY", 3600.0)
    hatches.note(use())
    hatches.run_ended(RUN)
    with hatches._changed:
        assert hatches._changed.wait_for(lambda: not hatches._waiting, 20)
    monkeypatch.setattr(room, "FIRST_DELAY", 0.0)
    hatches.note(use())
    assert hatches.flush(20)

    assert stored() == [("a report", RUN, 1), ("a report", RUN, 1)]


def test_what_a_clock_starts_again_and_again_is_one_record_of_the_process(
    hatches: HatchRecorder,
) -> None:
    """B153: N ticks, one record in the window; it names the first run. With a user, one a run."""
    with registry.isolated():
        registry.register(
            JobDefinition(
                handler=lambda payload, ctx: None,
                app_label="testapp",
                name="every-minute",
                trigger=Cron("* * * * *"),
                tenant="system",
            )
        )
        tick = use(job_name="testapp:job:every-minute", tenant_id=SYSTEM, caller_id=None)
        runs = [uuid7() for _ in range(5)]
        for run_id in runs:
            hatches.note(dataclasses.replace(tick, run_id=run_id))
            hatches.run_ended(run_id)
        for run_id in runs[:2]:
            hatches.note(dataclasses.replace(tick, run_id=run_id, caller_id="7"))
        assert hatches.flush(20)

    assert sorted(stored(), key=lambda row: row[2]) == [
        ("a report", runs[0], 1), ("a report", runs[1], 1), ("a report", runs[0], 5),
    ]  # fmt: skip


def test_after_its_window_a_use_is_reported_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """B152: a window has an end, also where no run has one."""
    now = [1000.0]
    recorder = HatchRecorder(lambda: now[0])
    for passed in (0.0, windows.WINDOW - 1, windows.WINDOW, windows.WINDOW + 1):
        now[0] = 1000.0 + passed
        recorder.note(use(run_id=None, job_name=""))
        assert recorder.flush(20)

    assert [count for _, _, count in stored()] == [2, 2]


def test_a_use_counts_as_reported_only_once_it_is_stored(
    hatches: HatchRecorder,
    database_away: DatabaseAway,
    told: list[dict[str, Any]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """P107: while the database is away uses are counted, said once, and none is marked or told."""
    with database_away():
        hatches.note(use())
        assert not hatches.flush(0.4)
        hatches.note(use())
        assert not hatches.flush(0.2)
        assert not told
        if connection.vendor == "postgresql":  # SQLite is waited for, for 20 s
            wait_until(lambda: "cannot be recorded now" in caplog.text, description="it is told")
            assert caplog.text.count("cannot be recorded now") == 1
        [window] = hatches._waiting.values()
        assert window.stored == 0
    assert hatches.flush(20)

    assert stored() == [("a report", RUN, 2)]
    assert [signal["use"] for signal in told] == [use()]  # (SQLite: told of what came first)


def test_what_there_is_no_room_for_is_told_and_tried_again(
    hatches: HatchRecorder,
    sink: Router,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """P107: memory is bounded; a use that is not kept is in the log, and the next one reports."""
    monkeypatch.setattr(room, "MOST_WINDOWS", 2)
    for reason in ("first", "second", "third", "third"):
        hatches.note(use(reason=reason))
    lost = [r.message for r in caplog.records if r.levelno == logging.ERROR]
    assert len(lost) == 2
    for fact in ("third", "testapp:job:record", "acme", SYSTEM_USER_ID, "'7'", str(RUN)):
        assert fact in lost[0]
    sink.is_away = False
    assert hatches.flush(20)
    hatches.note(use(reason="third"))
    assert hatches.flush(20)

    assert [reason for reason, _, _ in stored()] == ["first", "second", "third"]


def test_windows_that_are_on_record_make_room(
    hatches: HatchRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P107: at the limit the oldest are forgotten, and reported again rather than not at all."""
    monkeypatch.setattr(room, "MOST_WINDOWS", 4)
    for number in range(10):
        hatches.note(use(reason=str(number), run_id=uuid7()))
        assert hatches.flush(20)
        assert len(hatches._windows) <= 4
        assert len(hatches._of_run) <= 4

    assert len(stored()) == 10


def test_a_row_that_the_database_refuses_holds_up_no_other(
    hatches: HatchRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    """P107: it is told, with all that is known, and the next use of its kind reports again."""
    with hatches._changed:  # nothing is written in here
        hatches.note(use(reason="refused by the database"))
        hatches.note(use(reason="fine"))
        bad, _ = hatches._waiting.values()
        taken = bad.snapshot().row()
        taken.reason = "another row with its key"
        taken.save(force_insert=True)
    assert hatches.flush(20)
    assert "refused by the database" in caplog.text
    assert [reason for reason, _, _ in stored()] == ["another row with its key", "fine"]

    hatches.note(use(reason="refused by the database"))
    assert hatches.flush(20)
    assert len(stored()) == 3


def test_the_end_of_a_process_tells_what_is_lost(
    hatches: HatchRecorder, sink: Router, caplog: pytest.LogCaptureFixture
) -> None:
    """P107: with the database away for good, the log has it, with the count."""
    hatches.note(use())
    hatches.note(use())
    hatches.close(0.1)

    [line] = [r.message for r in caplog.records if "the process ends" in r.message]
    assert "unsafe_raw" in line
    assert "2 times" in line


def test_every_use_is_counted(hatches: HatchRecorder, settings: Settings) -> None:
    """B151: by a meter, where there is one; also what is no record of its own."""
    meter = InMemoryMeter()
    settings.KUMIKO = {**settings.KUMIKO, "METER": meter}
    for refused in (False, False, True):
        report_use("unsafe_raw", "why", tenant_id="acme", actor_id="7", refused=refused)

    name = names.HATCHES.name
    assert meter.value(name, kind="unsafe_raw", outcome="used") == 2
    assert meter.value(name, kind="unsafe_raw", outcome="refused") == 1


def test_a_receiver_that_breaks_off_changes_nothing(hatches: HatchRecorder) -> None:
    """P24: nor does it end the thread that writes."""

    def receive(**arguments: Any) -> None:
        raise SystemExit(3)

    escape_hatch_used.connect(receive)
    try:
        hatches.note(use())
        assert hatches.flush(20)
        hatches.note(use(run_id=OTHER_RUN))
        assert hatches.flush(20)
    finally:
        escape_hatch_used.disconnect(receive)

    assert len(stored()) == 2


def test_odd_and_long_texts_are_stored(hatches: HatchRecorder) -> None:
    """P107: nothing that a caller names can keep its use from being recorded."""
    hatches.note(use(detail="a\0b\ud800" + "x" * 5000, reason="r" * 900, caller_id="c" * 900))
    for number in range(400):
        hatches.note(use(reason="many", detail=f"row {number}"))
    assert hatches.flush(20)

    odd, many = EscapeHatchUse.objects.order_by("id")
    assert odd.detail.startswith("a\ufffdb?x")
    assert many.count == 400
    assert many.detail.startswith("row 0; row 1; ")
    assert many.detail.endswith("; …")
    assert len(many.detail) <= 1000


def test_a_record_that_was_deleted_is_written_anew(hatches: HatchRecorder) -> None:
    """P107: what is not there any more is not counted on."""
    hatches.note(use())
    assert hatches.flush(20)
    EscapeHatchUse.objects.all().delete()
    hatches.note(use())
    assert hatches.flush(20)

    assert stored() == [("a report", RUN, 2)]


@pytest.mark.django_db(transaction=False)
def test_in_a_transaction_of_a_test_case_a_use_is_written_right_there(
    hatches: HatchRecorder, told: list[dict[str, Any]]
) -> None:
    """B151: tests of a host see what was recorded, and it is rolled back with the rest."""
    report_use("unsafe_raw", "a report", tenant_id="acme", actor_id="7")

    assert stored() == [("a report", None, 1)]
    assert len(told) == 1
    assert hatches._thread is None
