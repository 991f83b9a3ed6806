"""``runjobs --check``: would a worker start here, and would it keep its jobs?"""

from __future__ import annotations

from dataclasses import dataclass, field

from django.db import DatabaseError, connections, router
from django.db.migrations.executor import MigrationExecutor

from kumiko_django.broker import queues
from kumiko_django.broker.connection import current_address
from kumiko_django.conf import get_settings
from kumiko_django.definitions.registry import registry
from kumiko_django.exceptions import BrokerUnavailable, SettingsError
from kumiko_django.history.models import JobRun
from kumiko_django.observability.chosen import get_meter, get_tracer
from kumiko_django.worker.config import HostConfig
from kumiko_django.worker.exit_codes import ExitCode


@dataclass
class Findings:
    """What was looked at, and what is wrong with it."""

    facts: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    code: ExitCode = ExitCode.OK

    def error(self, text: str, code: ExitCode) -> None:
        """Note an error; the first one decides the exit code."""
        self.errors.append(text)
        if self.code is ExitCode.OK:
            self.code = code


def check_database() -> Findings:
    """Whether the history's database is reachable and has all our tables."""
    findings = Findings()
    alias = router.db_for_write(JobRun)
    connection = connections[alias]
    was_open = connection.connection is not None
    try:
        connection.ensure_connection()
        executor = MigrationExecutor(connection)
        targets = [key for key in executor.loader.graph.leaf_nodes() if key[0] == "kumiko"]
        missing = executor.migration_plan(targets)
    except DatabaseError as error:
        findings.error(
            f"The database {alias!r} cannot be reached: {str(error).strip()}",
            ExitCode.DATABASE_UNAVAILABLE,
        )
        return findings
    finally:
        if not was_open:
            connection.close()  # the worker's main thread has no other use for one
    if missing:
        names = ", ".join(migration.name for migration, _ in missing)
        findings.error(
            f"The database {alias!r} lacks migrations of kumiko ({names}). Run: manage.py migrate",
            ExitCode.CONFIGURATION,
        )
    else:
        findings.facts.append(f"Database {alias!r} ({connection.vendor}): reachable, migrated")
    return findings


async def check_broker(config: HostConfig) -> Findings:
    """Whether Redis is reachable and fit to keep jobs."""
    findings = Findings()
    try:
        client = await queues.connect(config.connect_seconds)
    except BrokerUnavailable as error:
        findings.error(str(error), ExitCode.BROKER_UNAVAILABLE)
        return findings
    try:
        errors, findings.warnings = await queues.server_problems(client)
        for text in errors:
            findings.error(text, ExitCode.CONFIGURATION)
        findings.facts.append(f"Redis at {current_address()}: reachable")
        for lane in config.lanes:
            counts = await queues.lane_counts(client, lane)
            findings.facts.append(
                f"Lane {lane}: {counts.waiting + counts.prioritized} waiting, "
                f"{counts.active} running, {counts.delayed} delayed"
            )
    finally:
        await client.aclose()
    return findings


def check_jobs(config: HostConfig) -> Findings:
    """How many jobs the lanes have; a lane without any is probably a mistake."""
    findings = Findings()
    for lane in config.lanes:
        count = sum(1 for definition in registry.all() if definition.lane == lane)
        findings.facts.append(f"Lane {lane}: {count} {'job' if count == 1 else 'jobs'} defined")
        if not count and len(config.lanes) == 1:
            findings.warnings.append(f"No job is defined for lane {lane!r}.")
    return findings


def check_tenants() -> Findings:
    """How many tenants are active, which asks ``TENANTS`` of the host project."""
    findings = Findings()
    settings = get_settings()
    if not settings.tenancy_enabled:
        findings.facts.append("Tenants: none, everything belongs to SYSTEM")
        return findings
    try:
        count = len(settings.active_tenants())
    except Exception as error:  # noqa: BLE001  (it is the host's code, and may raise anything)
        findings.error(
            f'KUMIKO["TENANTS"] cannot be asked: {type(error).__name__}: {error}',
            ExitCode.CONFIGURATION,
        )
        return findings
    findings.facts.append(f"Tenants: {count} active")
    if not count:
        findings.warnings.append('KUMIKO["TENANTS"] gives no tenant.')
    return findings


def check_observability() -> Findings:
    """Whether ``METER`` and ``TRACER`` can be made, which a worker does when it starts."""
    findings = Findings()
    for key, get in (("METER", get_meter), ("TRACER", get_tracer)):
        try:
            made = get()
        except SettingsError as error:
            findings.error(str(error), ExitCode.CONFIGURATION)
        else:
            if made is not None:
                findings.facts.append(f'KUMIKO["{key}"]: made')
    return findings
