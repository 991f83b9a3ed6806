"""``manage.py listjobs``: the jobs that this process knows."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from kumiko_django.definitions.options import LANES
from kumiko_django.definitions.registry import registry
from kumiko_django.definitions.summary import Summary, summary
from kumiko_django.exceptions import KumikoError
from kumiko_django.worker.exit_codes import ExitCode


class Command(BaseCommand):
    """Asks the registry, filters, prints."""

    help = "List the jobs of all installed apps: name, lane, trigger, and the options that are set."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "text", nargs="?", default="", help="Only jobs that have this text in their name."
        )
        parser.add_argument("--lane", choices=LANES, help="Only jobs of this lane.")
        parser.add_argument("--app", metavar="LABEL", help="Only jobs of this app.")
        parser.add_argument(
            "--trigger", metavar="KIND", help='Only jobs with this kind of trigger, e.g. "manual".'
        )
        parser.add_argument(
            "--json", action="store_true", dest="as_json", help="Print a JSON list, for programs."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the command."""
        try:
            jobs = [summary(definition) for definition in registry.all()]
        except KumikoError as error:
            raise CommandError(str(error), returncode=ExitCode.CONFIGURATION) from error
        shown = [job for job in jobs if _matches(job, options)]
        shown.sort(key=lambda job: job.name)
        if options["as_json"]:
            plain = [dataclasses.asdict(job) for job in shown]
            self.stdout.write(json.dumps(plain, indent=2, ensure_ascii=False))
        elif shown:
            self._table(shown)
        else:
            self.stderr.write(_why_none(jobs, options))

    def _table(self, jobs: list[Summary]) -> None:
        rows = [("name", "lane", "trigger", "options"), *map(_row, jobs)]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        for number, (name, lane, trigger, set_options) in enumerate(rows):
            cells = (name.ljust(widths[0]), lane.ljust(widths[1]), trigger.ljust(widths[2]))
            line = "  ".join((*cells, set_options)).rstrip()
            self.stdout.write(self.style.MIGRATE_HEADING(line) if number == 0 else line)


def _matches(job: Summary, options: dict[str, Any]) -> bool:
    app = options["app"]
    return (
        options["text"].lower() in job.name
        and options["lane"] in (None, job.lane)
        and (app is None or _is_of(job, app))
        and (options["trigger"] or job.trigger).lower() == job.trigger
    )


def _row(job: Summary) -> tuple[str, str, str, str]:
    details = " ".join(filter(None, map(_detail, job.trigger_details.values())))
    trigger = f"{job.trigger} {details}".strip()
    given = ", ".join(f"{name}={_short(value)}" for name, value in job.options.items())
    return job.name, job.lane, trigger, given


def _detail(value: Any) -> str:
    """A value of a trigger, without the marks of a programming language."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{key}={_short(each)}" for key, each in value.items())
    return str(value)


def _why_none(jobs: list[Summary], options: dict[str, Any]) -> str:
    """Which filter nothing could pass, and what there is instead."""
    if not jobs:
        return "No jobs."
    told = (
        f"None of the {len(jobs)} jobs matches." if len(jobs) > 1 else "The one job does not match."
    )
    if options["app"] is not None and not any(_is_of(job, options["app"]) for job in jobs):
        apps = sorted({job.name.split(":", 1)[0] for job in jobs})
        told += f" No job is of the app {options['app']!r}; apps with jobs: {', '.join(apps)}."
    kind = options["trigger"]
    if kind is not None and kind.lower() not in (kinds := sorted({job.trigger for job in jobs})):
        told += f" No job has a trigger {kind!r}; triggers: {', '.join(kinds)}."
    return told


def _is_of(job: Summary, app: str) -> bool:
    return job.name.startswith(f"{app.lower().replace('_', '-')}:")


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
