"""The door as the runner sees it: which rules hold for a delivery, and the record of a skip."""

from __future__ import annotations

from dataclasses import replace

from kumiko_django.admission.rules import has_rules, rules_for
from kumiko_django.broker.delivery import Delivery
from kumiko_django.broker.envelope import read_metadata
from kumiko_django.broker.rules import Rules
from kumiko_django.definitions.registry import registry
from kumiko_django.exceptions import KumikoError
from kumiko_django.history.events import RunStarted
from kumiko_django.run.state import Run
from kumiko_django.tenancy.resolution import tenant_for_run


def rules_of(delivery: Delivery) -> Rules | None:
    """The rules that hold for a delivery; None where there are none, or it is going to be refused.

    The tenant is found as the run finds it, whoever has queued the job (P11, B232).
    """
    try:
        definition = registry.get(delivery.job_name)
        if not has_rules(definition):
            return None
        data = delivery.data if isinstance(delivery.data, dict) else {}
        carried = read_metadata({"_tenantId": data.get("_tenantId")}).tenant_id
        return rules_for(definition, tenant_for_run(definition, carried))
    except KumikoError:
        return None


def skipped_start(run: Run) -> RunStarted:
    """The start of a run that there was not: the door let nothing in."""
    run.start_event = replace(run.begin(), attempt=0, start=0, wait_ms=None)
    return run.start_event
