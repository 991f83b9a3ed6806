"""What the tenant of a run may see of it: B181-B184b and P109, from delivery to row."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.dispatch import Signal
from pydantic import BaseModel
from pytest_django import Settings

from kumiko_django import (
    JobContext,
    KumikoError,
    Unrecoverable,
    VisibleFailure,
    VisibleRun,
    signals,
)
from kumiko_django.broker.delivery import Delivery, Fail, Fate, Retry
from kumiko_django.history.models import JobRun
from kumiko_django.history.visible_models import TenantVisibleFailure, TenantVisibleRun
from kumiko_django.types.ids import SYSTEM
from tests.helpers.waiting import wait_until
from tests.unit.run.deliveries import NAME, RunOne, delivery

pytestmark = pytest.mark.django_db(transaction=True)

FAILURE = VisibleFailure("billing.reminder_failed", subject=("invoice_id",))
RUN = VisibleRun(subject=("invoice_id",))


def of(payload: dict[str, Any], **values: Any) -> Delivery:
    return delivery(job_name=NAME, data={"_tenantId": "acme", **payload}, **values)


@contextlib.contextmanager
def heard(signal: Signal) -> Iterator[list[Any]]:
    """Give the runs that a signal tells of."""
    runs: list[Any] = []

    def receive(run: Any, **arguments: Any) -> None:
        runs.append(run)

    signal.connect(receive)
    try:
        yield runs
    finally:
        signal.disconnect(receive)


class CardDeclined(KumikoError):
    """An error of a host, with a message for tenants."""

    message_key = "billing.card_declined"


class Foreign(Exception):
    """Something else that happens to have such an attribute."""

    message_key = "the.card.4711"


class TextAsKey(KumikoError):
    """A mistake: no key."""

    message_key = "The card 4711 is not valid"


@pytest.mark.parametrize(
    ("error", "key"),
    [
        (ValueError("card 4711"), "billing.reminder_failed"),
        (CardDeclined("card 4711"), "billing.card_declined"),
        (Unrecoverable("card 4711", message_key="billing.gone"), "billing.gone"),
        (Unrecoverable("card 4711"), "billing.reminder_failed"),
        (Foreign("card 4711"), "billing.reminder_failed"),
        (TextAsKey("card 4711"), "billing.reminder_failed"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value,
)
def test_a_failure_is_told_by_the_key_of_a_message(
    error: Exception, key: str, run_one: RunOne
) -> None:
    """B184, design 3: the error's own if it is made for it, else the declared one; never a text."""

    def handler(payload: Any, ctx: JobContext) -> None:
        raise error

    with heard(signals.job_failed) as told:
        run_one(handler, of({"invoice_id": 7}), tenant_visible_failure=FAILURE)
    row = TenantVisibleFailure.objects.get()
    run = JobRun.objects.get()
    assert (row.tenant_id, row.job_name, row.subject) == ("acme", NAME, {"invoice_id": 7})
    assert (row.message_key, row.run_id, row.resolved_at) == (key, run.id, None)
    assert told[0].message_key == key
    assert "4711" in run.error
    assert "4711" not in repr(TenantVisibleFailure.objects.values().get())
    assert not TenantVisibleRun.objects.exists()


def test_without_the_option_no_key_is_told(run_one: RunOne) -> None:
    """B184: also where the error has one."""

    def handler(payload: Any, ctx: JobContext) -> None:
        raise CardDeclined("4711")

    with heard(signals.job_failed) as told:
        run_one(handler, of({"invoice_id": 7}), tenant_visible_run=RUN)
    assert told[0].message_key is None
    assert not TenantVisibleFailure.states.exists()
    assert TenantVisibleRun.objects.get().status == "failed"


def test_an_attempt_that_others_follow_tells_nothing(run_one: RunOne) -> None:
    """P109: neither on record nor in the signal."""

    def handler(payload: Any, ctx: JobContext) -> None:
        raise CardDeclined("4711")

    with heard(signals.job_failed) as told:
        settlement = run_one(
            handler, of({"invoice_id": 7}, max_attempts=2),
            retries=1, tenant_visible_failure=FAILURE,
        )  # fmt: skip
    assert isinstance(settlement, Retry)
    assert (told[0].final, told[0].message_key) == (False, None)
    assert not TenantVisibleFailure.states.exists()


def test_a_success_resolves_and_tells_no_key(run_one: RunOne) -> None:
    """B184a, P109."""
    with heard(signals.job_completed) as told:
        run_one(lambda payload, ctx: 1, of({"invoice_id": 7}), tenant_visible_failure=FAILURE)
    assert told[0].message_key is None
    state = TenantVisibleFailure.states.get()
    assert (state.run_id, state.success_run_id) == (None, JobRun.objects.get().id)


def test_a_run_is_seen_while_it_runs(run_one: RunOne) -> None:
    """B184b: the start carries it, for the tenant of the run."""
    seen: list[Any] = []

    def handler(payload: Any, ctx: JobContext) -> None:
        wait_until(TenantVisibleRun.objects.exists, description="the run is seen")
        seen.extend(TenantVisibleRun.objects.values_list("tenant_id", "subject", "status"))

    run_one(handler, of({"invoice_id": 7}), tenant_visible_run=RUN)
    assert seen == [("acme", {"invoice_id": 7}, "running")]
    row = TenantVisibleRun.objects.get()
    assert (row.status, row.final, row.run_id) == ("completed", True, JobRun.objects.get().id)


@pytest.mark.parametrize(
    ("payload", "options", "complaint"),
    [
        ({}, {"tenant_visible_run": RUN}, "tenant_visible_run of .*no field 'invoice_id'"),
        (
            {"invoice_id": {"secret": 1}}, {"tenant_visible_failure": FAILURE},
            "tenant_visible_failure of testapp:job:under-test: the field 'invoice_id' is an object",
        ),
        (
            {"invoice_id": ["secret"]},
            {"tenant_visible_failure": FAILURE, "tenant_visible_run": RUN},
            "tenant_visible_run of testapp:job:under-test: the field 'invoice_id' is a list",
        ),
        (
            {"n": 1}, {"tenant_visible_failure": FAILURE, "tenant_visible_run": VisibleRun(("n",))},
            "tenant_visible_failure of testapp:job:under-test: the payload has no field",
        ),
    ],
)  # fmt: skip
def test_a_payload_without_a_subject_fails_for_good_and_on_record(
    payload: dict[str, Any], options: dict[str, Any], complaint: str, run_one: RunOne
) -> None:
    """B132, B182, B183: job, declaration and field are named, the run's first; no handler."""
    called: list[int] = []
    with heard(signals.job_failed) as told:
        settlement = run_one(
            lambda payload, ctx: called.append(1), of(payload, max_attempts=3), retries=2, **options
        )
    assert isinstance(settlement, Fail)
    assert not called
    run = JobRun.objects.get()
    assert (run.status, run.final, run.payload) == ("failed", True, payload)
    assert re.search(complaint, run.error)
    assert "secret" not in run.error
    assert (told[0].final, told[0].message_key) == (True, None)
    assert not TenantVisibleFailure.states.exists()
    assert not TenantVisibleRun.objects.exists()


class Sized(BaseModel):
    invoice_id: int = 3


def test_defaults_of_the_schema_are_part_of_the_subject(run_one: RunOne) -> None:
    """Another producer's payload may leave them out; the handler is given them all the same."""
    run_one(lambda payload, ctx: 1, of({}), schema=Sized, tenant_visible_run=RUN)
    assert TenantVisibleRun.objects.get().subject == {"invoice_id": 3}


def test_a_payload_that_the_schema_refuses_is_a_failure_that_is_seen(run_one: RunOne) -> None:
    """P28: no handler ran, and the tenant is told that its work was not done."""
    payload = {"invoice_id": "no number"}
    run_one(lambda payload, ctx: 1, of(payload), schema=Sized, tenant_visible_failure=FAILURE)
    row = TenantVisibleFailure.objects.get()
    assert (row.subject, row.message_key) == (payload, "billing.reminder_failed")


def test_a_quarantined_job_is_a_failure_that_is_seen(run_one: RunOne, settings: Settings) -> None:
    settings.KUMIKO = {**settings.KUMIKO, "STALL_BUDGET": 2}
    run_one(
        lambda payload, ctx: 1, of({"invoice_id": 7}, losses=2, start=3),
        tenant_visible_failure=FAILURE, tenant_visible_run=RUN,
    )  # fmt: skip
    assert TenantVisibleFailure.objects.get().message_key == "billing.reminder_failed"
    assert TenantVisibleRun.objects.get().status == "quarantined"


def test_what_the_queue_bars_has_failed(run_one: RunOne) -> None:
    """Fate.BARRED: the handler was done, its job is not."""
    run_one(
        lambda payload, ctx: 1, of({"invoice_id": 7}), fate=Fate.BARRED,
        tenant_visible_failure=FAILURE,
    )  # fmt: skip
    assert TenantVisibleFailure.objects.get().message_key == "billing.reminder_failed"


def test_a_run_whose_lock_was_lost_says_nothing(run_one: RunOne) -> None:
    """Fate.VOID: another worker has the job, and will say how it ends."""
    run_one(
        lambda payload, ctx: 1, of({"invoice_id": 7}), fate=Fate.VOID,
        tenant_visible_failure=FAILURE,
    )  # fmt: skip
    assert not TenantVisibleFailure.states.exists()


def test_work_of_the_system_is_shown_to_no_tenant(run_one: RunOne) -> None:
    """Design 3: ``tenant_id=SYSTEM`` says it for once."""
    given = delivery(job_name=NAME, data={"_tenantId": SYSTEM, "invoice_id": 7})
    run_one(lambda payload, ctx: 1, given, tenant_visible_run=RUN, tenant_visible_failure=FAILURE)
    assert JobRun.objects.get().status == "completed"
    assert not TenantVisibleRun.objects.exists()
    assert not TenantVisibleFailure.states.exists()


def test_without_tenancy_all_is_shown(run_one: RunOne, settings: Settings) -> None:
    """Then everything is SYSTEM's, and so is what is seen."""
    settings.KUMIKO = {key: v for key, v in settings.KUMIKO.items() if key != "TENANTS"}
    given = delivery(job_name=NAME, data={"invoice_id": 7})
    run_one(lambda payload, ctx: 1, given, tenant_visible_run=RUN)
    assert TenantVisibleRun.objects.get().tenant_id == SYSTEM
