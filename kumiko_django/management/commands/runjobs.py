"""``manage.py runjobs``: host the BullMQ worker of a lane."""

from __future__ import annotations

import argparse
import asyncio
import logging
from typing import Any

from django.core.management.base import (
    BaseCommand,
    CommandError,
    CommandParser,
    SystemCheckError,
)

from kumiko_django.conf import get_settings
from kumiko_django.definitions.options import LANES, Lane
from kumiko_django.exceptions import BrokerUnavailable, KumikoError
from kumiko_django.handlers.identity import only_in_runs
from kumiko_django.management.arguments import seconds
from kumiko_django.worker import inspection, loop
from kumiko_django.worker.boot import CannotReset, reset_boot_job
from kumiko_django.worker.config import HostConfig
from kumiko_django.worker.exit_codes import ExitCode
from kumiko_django.worker.gates import GateFailed
from kumiko_django.worker.host import Host
from kumiko_django.worker.inspection import Findings
from kumiko_django.worker.shutdown import leave, leave_after, on_stop

logger = logging.getLogger("kumiko_django.worker")

EXIT_SECONDS = 5.0
"""How long the process may take to end once the worker has stopped."""

_LEVELS = {0: logging.WARNING, 1: logging.INFO, 2: logging.DEBUG, 3: logging.DEBUG}


class Command(BaseCommand):
    """Parses, checks, runs; everything else is in the worker room."""

    help = (
        "Run the jobs of a lane. The first SIGTERM or SIGINT takes no more jobs, waits for those "
        "that run and gives back the rest; a second one leaves at once."
    )

    # Checked in handle(), where a failure gets an exit code of its own.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--lane",
            choices=[*LANES, "all"],
            default="worker",
            help="Lane whose jobs this process runs (default: %(default)s).",
        )
        parser.add_argument(
            "--concurrency",
            type=_at_least_one,
            help='Jobs at a time, for each lane (default: KUMIKO["CONCURRENCY"], 5).',
        )
        parser.add_argument(
            "--grace",
            type=seconds,
            help=(
                "Seconds that running jobs may go on after the first signal "
                '(default: KUMIKO["GRACE"], 25).'
            ),
        )
        mode = parser.add_mutually_exclusive_group()
        mode.add_argument(
            "--drain",
            action="store_true",
            help="End when nothing is left to do; jobs that are planned for later are left.",
        )
        mode.add_argument(
            "--check",
            action="store_true",
            dest="check_only",
            help="Only tell whether a worker could run here: settings, Redis, database, jobs.",
        )
        mode.add_argument(
            "--reset",
            metavar="NAME",
            help="Only forget that the boot job NAME was queued: the next worker of its lane that "
            "starts queues it again.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the command."""
        self._set_up_logging(int(options["verbosity"]))
        try:
            self.check()
        except SystemCheckError as error:
            raise CommandError(str(error), returncode=ExitCode.CONFIGURATION) from error
        try:
            if options["reset"]:
                self.stdout.write(reset_boot_job(options["reset"]))
                return
            config = _config(options)
            if options["check_only"]:
                self._check(config)
                return
            self._require(inspection.check_database())
            # Not so through call_command: then the process is the caller's, and goes on.
            owns_process = bool(getattr(self, "_called_from_command_line", False))
            if owns_process:
                only_in_runs()
            retired = loop.run(_host(config, owns_process=owns_process))
        except BrokerUnavailable as error:
            raise CommandError(str(error), returncode=ExitCode.BROKER_UNAVAILABLE) from error
        except GateFailed as error:
            raise CommandError(str(error), returncode=ExitCode.GATE_FAILED) from error
        except CannotReset as error:
            raise CommandError(str(error), returncode=ExitCode.FAULT) from error
        except KumikoError as error:
            raise CommandError(str(error), returncode=ExitCode.CONFIGURATION) from error
        except RuntimeError as error:
            logger.exception("The worker broke")
            raise CommandError(str(error), returncode=ExitCode.FAULT) from error
        if retired:
            raise CommandError(
                "A handler did not end after its timeout; start the worker again.",
                returncode=ExitCode.RETIRED,
            )

    def _check(self, config: HostConfig) -> None:
        findings = [
            inspection.check_jobs(config),
            inspection.check_database(),
            inspection.check_tenants(),
            inspection.check_observability(),
            asyncio.run(inspection.check_broker(config)),
        ]
        for finding in findings:
            for fact in finding.facts:
                self.stdout.write(fact)
            for warning in finding.warnings:
                self.stderr.write(self.style.WARNING(f"Warning: {warning}"))
        for finding in findings:
            self._require(finding)
        self.stdout.write(self.style.SUCCESS("A worker can run here."))

    def _require(self, finding: Findings) -> None:
        if finding.errors:
            raise CommandError("\n".join(finding.errors), returncode=finding.code)

    def _set_up_logging(self, verbosity: int) -> None:
        """Show our own log lines, unless the host project has said what to do with them."""
        package = logging.getLogger("kumiko_django")
        if package.handlers or logging.getLogger().handlers:
            return
        handler = logging.StreamHandler()  # stderr
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
        package.addHandler(handler)
        package.setLevel(_LEVELS[verbosity])


async def _host(config: HostConfig, *, owns_process: bool) -> bool:
    """Run a host; gives whether it had to retire."""
    host = Host(config)
    with on_stop(host.request_stop):
        try:
            finished = await host.run()
        except GateFailed:
            if owns_process:  # a thread that the gate has started must not keep the process (P59)
                leave_after(EXIT_SECONDS, ExitCode.GATE_FAILED)
            raise
        logger.info("stopped")
        if not owns_process:
            return host.retired
        code = ExitCode.RETIRED if host.retired else ExitCode.OK
        if not finished:
            # A handler may still run. Its job is back in the queue: end it with the process, now,
            # before another worker gets far with it. Closing the loop would wait for it.
            leave(code)
        leave_after(EXIT_SECONDS, code)
        return host.retired


def _config(options: dict[str, Any]) -> HostConfig:
    settings = get_settings()
    lanes: tuple[Lane, ...] = LANES if options["lane"] == "all" else (options["lane"],)
    grace = options["grace"]
    return HostConfig(
        lanes=lanes,
        concurrency=options["concurrency"] or settings.concurrency,
        grace_seconds=settings.grace if grace is None else grace,
        drain=options["drain"],
    )


def _at_least_one(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return value
