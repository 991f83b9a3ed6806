"""``manage.py prunejobruns`` by its command line."""

from __future__ import annotations

import datetime as dt
import os
import re
import signal
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone
from pytest_django import Settings

from kumiko_django.history.models import JobRun, JobRunLog, JobStat, RunStatus
from tests.helpers.fixtures import DatabaseAway
from tests.helpers.processes import ROOT, child_environment, run_django
from tests.helpers.waiting import wait_until
from tests.unit.history.admin_rows import make_log, make_run, unsaved_run

pytestmark = pytest.mark.django_db(transaction=True)


def run_of(days: float, **values: Any) -> JobRun:
    return make_run(started_at=timezone.now() - dt.timedelta(days=days), **values)


def old_runs(count: int) -> None:
    began = timezone.now() - dt.timedelta(days=50)
    JobRun.objects.bulk_create(
        (unsaved_run(started_at=began + dt.timedelta(seconds=n)) for n in range(count)),
        batch_size=500,
    )


def test_it_deletes_by_the_age_of_the_settings_and_says_what_it_did(settings: Settings) -> None:
    settings.KUMIKO = {**settings.KUMIKO, "HISTORY_AGE": dt.timedelta(days=10)}
    make_log(run_of(11), 4)
    run_of(12)
    kept, running = run_of(9), run_of(400, status=RunStatus.RUNNING)

    done = run_django("prunejobruns")

    assert done.returncode == 0, done.stderr
    assert "Deleted 2 runs and 4 log lines: all that ended before 20" in done.stdout
    assert f"The oldest run on record began {timezone.localtime(running.started_at):%Y-%m-%d}" in (
        done.stdout
    )
    assert set(JobRun.objects.values_list("id", flat=True)) == {kept.id, running.id}
    assert not JobRunLog.objects.exists()
    assert JobStat.objects.filter(status="completed").count() == 2


@pytest.mark.parametrize(("age", "left"), [("30", 2), ("30d", 2), ("12h", 0), ("25h", 1)])
def test_the_age_is_given_in_days_or_hours(age: str, left: int) -> None:
    run_of(31)
    run_of(2)
    run_of(1)
    out = StringIO()

    call_command("prunejobruns", older_than=None, stdout=out)
    call_command("prunejobruns", "--older-than", age, stdout=out)

    assert JobRun.objects.count() == left


def test_a_dry_run_deletes_nothing() -> None:
    run_of(31)
    out = StringIO()

    call_command("prunejobruns", "--dry-run", "--older-than", "30", stdout=out)

    assert re.search(r"Would delete 1 run that ended before 20\d\d-", out.getvalue())
    assert (JobRun.objects.count(), JobStat.objects.count()) == (1, 0)


def test_without_an_age_nothing_is_done(settings: Settings) -> None:
    """``HISTORY_AGE`` is None: all runs are kept."""
    settings.KUMIKO = {**settings.KUMIKO, "HISTORY_AGE": None}
    run_of(4_000)

    done = run_django("prunejobruns")

    assert done.returncode == 0, done.stderr
    assert "Nothing to do" in done.stdout
    assert "--older-than" in done.stdout
    assert JobRun.objects.count() == 1


def test_an_empty_history_is_said_to_be_empty() -> None:
    out = StringIO()

    call_command("prunejobruns", stdout=out)

    assert "Deleted 0 runs and 0 log lines" in out.getvalue()
    assert "The history is empty." in out.getvalue()


def test_verbosity_shows_progress_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "kumiko_django.management.commands.prunejobruns"
    monkeypatch.setattr(f"{module}._SHOWN_EVERY_SECONDS", 0)
    old_runs(5)
    quiet, loud = StringIO(), StringIO()

    call_command("prunejobruns", batch_size=2, verbosity=2, stdout=loud)
    old_runs(5)
    call_command("prunejobruns", verbosity=0, stdout=quiet)

    assert "Deleted 2 runs and 0 log lines so far" in loud.getvalue()
    assert "Deleted 4 runs and 0 log lines so far" in loud.getvalue()
    assert quiet.getvalue() == ""
    assert JobRun.objects.count() == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--older-than", "soon"], "'soon' is not an age: give days (30 or 30d) or hours (12h)"),
        (["--older-than", "0"], "'0' is not an age"),
        (["--older-than", "-3"], "--older-than"),
        (["--older-than", "3w"], "'3w' is not an age"),
        (["--older-than", "99999"], "'99999' is more than a hundred years"),
        (["--batch-size", "0"], "'0' is not a whole number from 1 to 10,000"),
        (["--batch-size", "10001"], "'10001' is not a whole number from 1 to 10,000"),
        (["--batch-size", "many"], "'many' is not a whole number"),
    ],
)
def test_bad_input_is_refused_by_name(arguments: list[str], message: str) -> None:
    run_of(500)

    with pytest.raises(CommandError) as caught:
        call_command("prunejobruns", *arguments)

    assert message in str(caught.value)
    assert JobRun.objects.count() == 1


def test_a_wrong_command_line_ends_with_2() -> None:
    done = run_django("prunejobruns", "--older-than", "soon")

    assert done.returncode == 2
    assert "'soon' is not an age" in done.stderr


def test_a_wrong_setting_is_an_error_with_its_name() -> None:
    done = run_django("prunejobruns", "--skip-checks", env={"KUMIKO_HISTORY_AGE": "0"})

    assert done.returncode == 3
    assert 'KUMIKO["HISTORY_AGE"] must be a whole number of seconds above 0' in done.stderr
    assert "Traceback" not in done.stderr


def test_a_database_that_is_away_is_named(database_away: DatabaseAway) -> None:
    run_of(50)
    with database_away():
        done = run_django("prunejobruns", env={"KUMIKO_TEST_SQLITE_TIMEOUT": "0.1"})

    assert done.returncode == 5, done.stderr
    assert "The history's database refuses: OperationalError:" in done.stderr
    assert "Traceback" not in done.stderr
    assert JobRun.objects.count() == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_broken_off_it_leaves_whole_batches(number: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C says how far it got; the kernel says nothing."""
    total, size = 6_000, 50
    old_runs(total)
    output = tmp_path / "output"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "django", "prunejobruns", "--batch-size", str(size)],
            cwd=ROOT,
            env=child_environment(),
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(lambda: JobRun.objects.count() < total, description="it has begun", timeout=30)
        os.kill(process.pid, number)
        code = process.wait(20)
    finally:
        process.kill()
    left = JobRun.objects.count()

    assert 0 < left < total, "it was broken off in the middle"
    assert (total - left) % size == 0
    if number is signal.SIGINT:
        assert code == 130
        assert f"Interrupted. Deleted {total - left:,} runs" in output.read_text()
        assert "the rest is as it was" in output.read_text()
    retried = StringIO()
    call_command("prunejobruns", stdout=retried)
    assert f"Deleted {left:,} runs" in retried.getvalue()


def test_the_database_of_a_router_is_pruned(settings: Settings) -> None:
    """The history's own database, whatever the default is."""
    settings.DATABASE_ROUTERS = [f"{__name__}.Refusing"]
    run_of(50)

    with pytest.raises(Refusing.Asked):
        call_command("prunejobruns", stdout=StringIO())

    assert connection.in_atomic_block is False


class Refusing:
    """A router that shows that it is asked where the history is written."""

    class Asked(Exception):
        pass

    def db_for_write(self, model: type, **hints: object) -> str:
        if model is JobRun and not hints:
            raise self.Asked
        return "default"
