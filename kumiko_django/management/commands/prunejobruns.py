"""``manage.py prunejobruns``: delete old runs of the history now."""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import re
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error
from django.db.models import ProtectedError, RestrictedError
from django.utils import timezone

from kumiko_django.conf import get_settings
from kumiko_django.exceptions import SettingsError
from kumiko_django.history import retention
from kumiko_django.history.retention import BATCH_SIZE, Pruned
from kumiko_django.management.arguments import batch_size
from kumiko_django.worker.exit_codes import ExitCode

_AGE = re.compile(r"(\d{1,6})([dh]?)")
_SHOWN_EVERY_SECONDS = 1.0


class Command(BaseCommand):
    """Parses, prunes, tells."""

    help = (
        "Delete the runs of the history that ended long ago, with their logs. Runs that are "
        "running or deferred stay. Workers do this every night."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--older-than",
            type=_age,
            metavar="AGE",
            help='Age from which on runs are deleted: days ("30", "30d") or hours ("12h") since '
            'their end (default: KUMIKO["HISTORY_AGE"], 30 days).',
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="Only tell how many runs would be deleted."
        )
        parser.add_argument(
            "--batch-size",
            type=batch_size,
            default=BATCH_SIZE,
            help="Runs deleted in one transaction, at most (default: %(default)s).",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the command."""
        try:
            age = options["older_than"] or _age_of_settings()
            if age is None:
                self.stdout.write(
                    'Nothing to do: KUMIKO["HISTORY_AGE"] is None, which keeps all runs. To '
                    "delete some, give --older-than."
                )
                return
            now = dt.datetime.now(dt.UTC)
            if options["dry_run"]:
                self._count(age, now)
            else:
                self._prune(age, now, int(options["batch_size"]), int(options["verbosity"]))
            self._tell_oldest(int(options["verbosity"]))
        except SettingsError as error:
            raise CommandError(str(error), returncode=ExitCode.CONFIGURATION) from error

    def _count(self, age: dt.timedelta, now: dt.datetime) -> None:
        try:
            number = retention.count(age, now=now)
        except Error as error:
            raise _failed(error, None) from error
        self.stdout.write(f"Would delete {_runs(number)} that ended {_before(age, now)}.")

    def _prune(self, age: dt.timedelta, now: dt.datetime, size: int, verbosity: int) -> None:
        so_far, shown_at = Pruned(), time.monotonic()

        def progress(done: Pruned) -> None:
            nonlocal so_far, shown_at
            so_far = done
            if verbosity > 1 and time.monotonic() - shown_at >= _SHOWN_EVERY_SECONDS:
                shown_at = time.monotonic()
                self.stdout.write(f"{_deleted(done)} so far")

        try:
            with _interrupted() as interrupted:
                done = retention.prune(
                    age,
                    now=now,
                    batch_size=size,
                    progress=progress,
                    go_on=lambda seconds: not interrupted.is_set(),
                )
        except (Error, ProtectedError, RestrictedError) as error:
            raise _failed(error, so_far) from error
        if not done.finished:
            told = f"Interrupted. {_deleted(done)}; the rest is as it was."
            raise CommandError(told, returncode=ExitCode.FORCED)
        if verbosity > 0:
            told = f"{_deleted(done)}: all that ended {_before(age, now)}."
            self.stdout.write(self.style.SUCCESS(told))

    def _tell_oldest(self, verbosity: int) -> None:
        if verbosity == 0:
            return
        oldest = retention.oldest_start()
        if oldest is None:
            self.stdout.write("The history is empty.")
        else:
            self.stdout.write(f"The oldest run on record began {_moment(oldest)}.")


@contextlib.contextmanager
def _interrupted() -> Iterator[threading.Event]:
    """Let the first Ctrl-C wait for the end of the batch, so that what is told is what was done."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event  # called by other code, whose process it is
        return

    def note(number: int, frame: object) -> None:
        event.set()
        signal.signal(signal.SIGINT, before)  # a second one does not wait

    before = signal.signal(signal.SIGINT, note)
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, before)


def _age_of_settings() -> dt.timedelta | None:
    seconds = get_settings().history_age
    return None if seconds is None else dt.timedelta(seconds=seconds)


def _failed(error: Exception, so_far: Pruned | None) -> CommandError:
    done = "" if so_far is None else f" {_deleted(so_far)} before that."
    reason = str(error).strip().split("\n", 1)[0]
    return CommandError(
        f"The history's database refuses: {type(error).__name__}: {reason}.{done}",
        returncode=ExitCode.DATABASE_UNAVAILABLE,
    )


def _deleted(done: Pruned) -> str:
    lines = "line" if done.logs == 1 else "lines"
    return f"Deleted {_runs(done.runs)} and {done.logs:,} log {lines}"


def _runs(number: int) -> str:
    return f"{number:,} {'run' if number == 1 else 'runs'}"


def _before(age: dt.timedelta, now: dt.datetime) -> str:
    return f"before {_moment(now - age)}"


def _moment(moment: dt.datetime) -> str:
    return f"{timezone.localtime(moment):%Y-%m-%d %H:%M %Z}"


def _age(text: str) -> dt.timedelta:
    match = _AGE.fullmatch(text.strip())
    if match is None or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an age: give days (30 or 30d) or hours (12h), at least 1"
        )
    number = int(match[1])
    age = dt.timedelta(hours=number) if match[2] == "h" else dt.timedelta(days=number)
    if age > dt.timedelta(days=36_500):
        raise argparse.ArgumentTypeError(f"{text!r} is more than a hundred years")
    return age
