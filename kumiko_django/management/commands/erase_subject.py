"""``manage.py erase_subject``: take a person's data out of the history and the queues."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error

from kumiko_django.conf import get_settings
from kumiko_django.exceptions import (
    BrokerUnavailable,
    DefinitionError,
    ScopeError,
    SettingsError,
)
from kumiko_django.history.erase import BATCH_SIZE
from kumiko_django.history.retention import LARGEST_BATCH
from kumiko_django.management.arguments import batch_size
from kumiko_django.management.tenants import tenant_of
from kumiko_django.worker.erasure import Erasure, erase_subject
from kumiko_django.worker.exit_codes import ExitCode


class Command(BaseCommand):
    """Parses, erases, tells."""

    help = (
        "Erase a person from the run history and from ended jobs of the queues: payloads, results, "
        "errors and logs of the jobs whose definitions have subject_fields."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "subject", type=_subject, help="The person's key, as it stands in the payloads."
        )
        whose = parser.add_mutually_exclusive_group()
        whose.add_argument(
            "--tenant", help="Only the runs and jobs of this tenant, or of 'system'."
        )
        whose.add_argument(
            "--all-tenants",
            action="store_true",
            help='Those of all tenants. With KUMIKO["TENANTS"] one of the two is needed: the same '
            "key may be another person's elsewhere.",
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="Only tell what would be erased."
        )
        parser.add_argument(
            "--batch-size",
            type=batch_size,
            default=BATCH_SIZE,
            help=f"Runs looked at in one step, 1 to {LARGEST_BATCH:,} (default: %(default)s).",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the command."""
        so_far = Erasure()

        def note(done: Erasure) -> bool:
            nonlocal so_far
            so_far = done
            return True

        try:
            self._refuse_unclear(options)
            done = erase_subject(
                options["subject"],
                tenant_id=None if options["tenant"] is None else tenant_of(options["tenant"]),
                dry_run=options["dry_run"],
                batch_size=options["batch_size"],
                go_on=note,
            )
        except (SettingsError, DefinitionError, ScopeError) as error:
            raise CommandError(str(error), returncode=ExitCode.CONFIGURATION) from error
        except BrokerUnavailable as error:
            told = f"{error} {_told(so_far, options)}"
            raise CommandError(told, returncode=ExitCode.BROKER_UNAVAILABLE) from error
        except Error as error:
            reason = str(error).strip().split("\n", 1)[0]
            told = f"The history's database refuses: {reason}. {_told(so_far, options)}"
            raise CommandError(told, returncode=ExitCode.DATABASE_UNAVAILABLE) from error
        except KeyboardInterrupt:
            told = f"Interrupted. {_told(so_far, options)}"
            raise CommandError(told, returncode=ExitCode.FORCED) from None
        if options["verbosity"] > 0:
            self.stdout.write(_told(done, options))
        if not done.is_complete:
            raise CommandError(_left(done), returncode=ExitCode.FAULT)

    def _refuse_unclear(self, options: dict[str, Any]) -> None:
        if get_settings().tenancy_enabled and not options["tenant"] and not options["all_tenants"]:
            raise CommandError(
                "Say whose runs: --tenant ID, or --all-tenants. The same key may be another "
                "person's elsewhere.",
                returncode=2,
            )


def _told(done: Erasure, options: dict[str, Any]) -> str:
    verb = "Would erase" if options["dry_run"] else "Erased"
    return (
        f"{verb}: runs {done.runs:,}, log lines {done.logs:,}, records that tenants see "
        f"{done.seen:,}, ended jobs in the queues {done.jobs:,}."
    )


def _left(done: Erasure) -> str:
    return (
        f"Not all of it: jobs that have not ended {done.pending:,}, runs that have not ended "
        f"{done.unended:,}, records on their way to the history {done.unrecorded:,}. They are as "
        "they were; do it again once they have ended, or have been removed from the queue."
    )


def _subject(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty; give the key of a person")
    return text
