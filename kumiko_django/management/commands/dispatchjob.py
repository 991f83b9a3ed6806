"""``manage.py dispatchjob``: queue a job, and wait for its end if asked to."""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from kumiko_django.definitions.job import JobDefinition
from kumiko_django.definitions.options import Lane
from kumiko_django.dispatching.dispatcher import dispatch
from kumiko_django.dispatching.request import find_definition
from kumiko_django.exceptions import BrokerUnavailable, KumikoError, TenantRequired
from kumiko_django.history.models import RunStatus
from kumiko_django.management.arguments import seconds
from kumiko_django.management.tenants import doubt_about, tenant_of
from kumiko_django.types.arguments import AMBIENT, TenantArgument
from kumiko_django.types.results import Dispatched
from kumiko_django.worker.exit_codes import DispatchCode
from kumiko_django.worker.following import Gone, NotEnded, follow

_SYSTEM_TOLD: Final = "--tenant system says for once that it belongs to none."


class Command(BaseCommand):
    """Parses, dispatches, follows."""

    help = (
        "Queue a job and print its id. With --wait the exit code says how it ended: 0 completed, "
        "1 failed, 7 not ended within --timeout."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("name", help="The job, e.g. billing:job:send-reminders.")
        parser.add_argument(
            "--payload",
            default="{}",
            metavar="JSON",
            help='A JSON object; "-" reads it from stdin (default: %(default)s).',
        )
        parser.add_argument(
            "--tenant",
            metavar="ID",
            help="The tenant that it runs for, or 'system' for none.",
        )
        parser.add_argument(
            "--wait", action="store_true", help="Tell what becomes of it, until it has ended."
        )
        parser.add_argument(
            "--timeout",
            type=seconds,
            metavar="SECONDS",
            help="How long to wait at most (default: for as long as it takes).",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the command."""
        if options["timeout"] is not None and not options["wait"]:
            raise CommandError("--timeout needs --wait.", returncode=DispatchCode.WRONG_COMMAND)
        payload = _payload(options["payload"])
        try:
            definition = find_definition(options["name"])
            tenant = self._tenant(definition, options)
            # Whoever waits cannot wait for the commit of a transaction around it.
            sent = dispatch(definition, payload, tenant_id=tenant, immediate=options["wait"])
        except BrokerUnavailable as error:
            raise CommandError(str(error), returncode=DispatchCode.BROKER_UNAVAILABLE) from error
        except TenantRequired as error:
            told = f"{definition.qualified_name} needs a tenant: give --tenant ID. {_SYSTEM_TOLD}"
            raise CommandError(told, returncode=DispatchCode.REFUSED) from error
        except (KumikoError, ValueError) as error:
            raise CommandError(str(error), returncode=DispatchCode.REFUSED) from error
        try:
            self._report(definition, sent, options)
        except KeyboardInterrupt:
            told = "Not waiting any more. The job goes on."
            raise CommandError(told, returncode=DispatchCode.INTERRUPTED) from None

    def _tenant(self, definition: JobDefinition, options: dict[str, Any]) -> TenantArgument:
        if options["tenant"] is None:
            return AMBIENT
        tenant = tenant_of(options["tenant"])
        if definition.tenant != "system" and (doubt := doubt_about(tenant)) is not None:
            self._tell(f"Warning: {doubt}", options)
        return tenant

    def _report(self, definition: JobDefinition, sent: Dispatched, options: dict[str, Any]) -> None:
        if not sent:  # no id: nothing has it, so nothing could be looked up by it
            told = f"{definition.qualified_name} was not accepted: {_rule(definition, sent)}."
            raise CommandError(told, returncode=DispatchCode.NOT_ACCEPTED)
        self.stdout.write(sent.job_id)
        self._tell(f"{sent.status}: {definition.qualified_name}", options)
        if options["wait"]:
            self._wait(definition.lane, sent.job_id, options)

    def _wait(self, lane: Lane, job_id: str, options: dict[str, Any]) -> None:
        timeout = options["timeout"]
        try:
            run = follow(lane, job_id, timeout, lambda line: self._tell(line, options))
        except NotEnded:
            told = f"The job has not ended within {timeout:g} s. It goes on."
            raise CommandError(told, returncode=DispatchCode.NOT_ENDED) from None
        except Gone:
            told = "The job has gone from the queue without an end on record: it was removed."
            raise CommandError(told, returncode=DispatchCode.FAILED) from None
        except BrokerUnavailable as error:
            told = f"{error} The job is queued; how it ends is not known here."
            raise CommandError(told, returncode=DispatchCode.BROKER_UNAVAILABLE) from error
        except DatabaseError as error:
            told = f"The history cannot be read: {str(error).strip()}. The job is queued."
            raise CommandError(told, returncode=DispatchCode.DATABASE_UNAVAILABLE) from error
        if run.status != RunStatus.COMPLETED:
            why = run.error or run.reason or "no reason is on record"
            told = f"The job ended as {run.status}: {why}"
            raise CommandError(told, returncode=DispatchCode.FAILED)
        if run.result is not None:
            self.stdout.write(json.dumps(run.result, ensure_ascii=False))

    def _tell(self, line: str, options: dict[str, Any]) -> None:
        """To stderr: stdout is for what programs read, the id and the result."""
        if int(options["verbosity"]) > 0:
            self.stderr.write(line, style_func=str)


def _rule(definition: JobDefinition, sent: Dispatched) -> str:
    """By which of its options a job was not let in."""
    if sent.reason == "skipped:max-per-tenant":
        return f"its tenant has {definition.max_per_tenant} pending already (max_per_tenant=)"
    if sent.status == "throttled":
        return f"one was let in less than throttle={definition.throttle} ago"
    if sent.status == "skipped":
        whose = "" if definition.concurrency_scope == "global" else " for this tenant"
        return f'one is pending{whose} already (concurrency="{definition.concurrency}")'
    return sent.reason or sent.status


def _payload(text: str) -> dict[str, Any]:
    source = "--payload"
    if text == "-":
        source, text = "stdin", sys.stdin.read()
    try:
        payload = json.loads(text)
    except ValueError as error:
        told = f"{source} is no JSON: {error}."
        raise CommandError(told, returncode=DispatchCode.REFUSED) from None
    if not isinstance(payload, dict):
        told = f'{source} must be a JSON object such as {{"limit": 10}}, not {text.strip()[:40]}.'
        raise CommandError(told, returncode=DispatchCode.REFUSED)
    return payload
