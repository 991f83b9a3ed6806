"""One job of an event that fails does not stop the others (B119, P66)."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest
from django.db import transaction
from pydantic import BaseModel, field_validator
from pytest_django import Settings

from kumiko_django import (
    BrokerUnavailable,
    KumikoError,
    On,
    PayloadError,
    SettingsError,
    TenantRequired,
)
from kumiko_django.signals import dispatch_failed
from tests.helpers.queues import QueueState
from tests.helpers.valkey import Valkey
from tests.integration.broker import servers
from tests.integration.events.listeners import Emit, both, idle
from tests.integration.worker.host_thread import Define

pytestmark = pytest.mark.django_db(transaction=True)

Told = list[dict[str, Any]]


FAULTS = {
    "many": ZeroDivisionError("a fault of the schema's own"),
    "settings": SettingsError("what only this job needs"),
}


class Wants(BaseModel):
    number: int


class Breaks(BaseModel):
    number: str

    @field_validator("number")
    @classmethod
    def explode(cls, value: str) -> str:
        raise FAULTS[value]


@both
def test_a_payload_that_does_not_fit_one_of_them(
    send: Emit,
    define: Define,
    queue: QueueState,
    told: Told,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """P66: it is in the answer, in the log, and told; the jobs around it are queued."""
    define(idle, name="before", trigger=On("a"))
    strict = define(idle, name="strict", trigger=On("a"), schema=Wants)
    broken = define(idle, name="broken", trigger=On("a"), schema=Breaks)
    define(idle, name="after", trigger=On("a"))
    before, wrong, fault, after = send("a", {"number": "many"}, tenant_id="acme")
    assert queue.wait == [before.job_id, after.job_id]
    assert [bool(answer) for answer in (before, wrong, fault, after)] == [True, False, False, True]
    assert (wrong.status, fault.status) == ("failed", "failed")
    assert "PayloadError" in (wrong.reason or "")
    assert "payload.number" in (wrong.reason or "")
    assert (fault.reason or "").startswith("ZeroDivisionError")
    assert [(one["sender"], one["payload"]) for one in told] == [
        (strict, {"number": "many"}),
        (broken, {"number": "many"}),
    ]
    assert isinstance(told[0]["error"], PayloadError)
    assert type(told[1]["error"]) is KumikoError
    lines = [entry for entry in caplog.records if entry.name == "kumiko_django.dispatch"]
    assert [line.levelno for line in lines] == [logging.ERROR] * 2
    assert "event a could not queue its job testapp:job:strict" in lines[0].getMessage()
    assert [line.exc_info is not None for line in lines] == [False, True]


@both
def test_a_setting_that_one_of_them_lacks(send: Emit, define: Define, queue: QueueState) -> None:
    """P66: raised into the caller, it would hide what was queued already."""
    define(idle, name="before", trigger=On("a"))
    define(idle, name="lacks", trigger=On("a"), schema=Breaks)
    before, lacks = send("a", {"number": "settings"}, tenant_id="acme")
    assert queue.wait == [before.job_id]
    assert lacks.reason == "SettingsError: what only this job needs"


@both
def test_a_job_that_needs_a_tenant(
    send: Emit, define: Define, queue: QueueState, told: Told
) -> None:
    """P66, P68: the others have theirs."""
    define(idle, name="needs", trigger=On("a"))
    define(idle, name="none", trigger=On("a"), tenant="system")
    needs, none = send("a")
    assert not needs
    assert queue.wait == [none.job_id]
    (one,) = told
    assert isinstance(one["error"], TenantRequired)
    assert (one["job_id"], one["tenant_id"]) == (needs.job_id, None)


@both
def test_a_repetition_adds_what_is_missing(
    send: Emit, define: Define, queue: QueueState, told: Told
) -> None:
    """P66, P65: and repeats nothing."""
    define(idle, name="good", trigger=On("a"))
    define(idle, name="needs", trigger=On("a"), schema=Wants)
    good, _ = send("a", {}, tenant_id="acme", event_id="e")
    again, needs = send("a", {"number": 5}, tenant_id="acme", event_id="e")
    assert again.job_id == good.job_id
    assert queue.wait == [good.job_id, needs.job_id]


@both
def test_a_receiver_that_fails_stops_nobody(send: Emit, define: Define, queue: QueueState) -> None:
    """P24, P66."""

    def broken(**arguments: Any) -> None:
        raise ZeroDivisionError

    define(idle, name="strict", trigger=On("a"), schema=Wants)
    define(idle, name="after", trigger=On("a"))
    dispatch_failed.connect(broken)
    try:
        answers = send("a", {}, tenant_id="acme")
    finally:
        dispatch_failed.disconnect(broken)
    assert queue.wait == [answers[1].job_id]


@both
@pytest.mark.parametrize("kind", ["silent", "refused"])
def test_redis_away(kind: str, send: Emit, define: Define, settings: Settings, told: Told) -> None:
    """P66, user-needs 5: told for each job, and an event with many waits once."""
    for number in range(20):
        define(idle, name=f"job-{number}", trigger=On("a"))
    with getattr(servers, kind)() as port:
        settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": f"redis://:s3cret@127.0.0.1:{port}/0"}
        began = time.monotonic()
        answers = send("a", {"n": 1}, tenant_id="acme", event_id="e")
        assert time.monotonic() - began < 4.5
    assert [answer.status for answer in answers] == ["failed"] * 20
    assert all("BrokerUnavailable" in (answer.reason or "") for answer in answers)
    assert "s3cret" not in str(answers)
    assert [one["job_id"] for one in told] == [answer.job_id for answer in answers]
    assert {one["tenant_id"] for one in told} == {"acme"}


@both
def test_redis_that_comes_back_in_between(
    send: Emit, define: Define, own_valkey: Valkey, queue_prefix: str
) -> None:
    """P66: one failure is no verdict on the next job, while it has cost next to nothing."""
    define(idle, name="first", trigger=On("a"))
    define(idle, name="second", trigger=On("a"))

    def repair(**arguments: Any) -> None:
        own_valkey.start()

    own_valkey.stop()
    dispatch_failed.connect(repair)
    try:
        first, second = send("a", tenant_id="acme")
    finally:
        dispatch_failed.disconnect(repair)
    assert (bool(first), bool(second)) == (False, True)
    with own_valkey.client() as client:
        assert QueueState(client, f"{queue_prefix}-worker").wait == [second.job_id]


@both
def test_redis_away_after_the_commit(
    send: Emit, define: Define, settings: Settings, told: Told
) -> None:
    """P63 (the alarm; the outbox comes later), P66: told for each, and nothing is raised."""
    for number in range(3):
        define(idle, name=f"job-{number}", trigger=On("a"))
    with servers.refused() as port:
        settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": f"redis://127.0.0.1:{port}/0"}
        with transaction.atomic():
            answers = send("a", {"n": 1}, tenant_id="acme")
            assert all(answers)
    assert [one["job_id"] for one in told] == [answer.job_id for answer in answers]
    assert all(isinstance(one["error"], BrokerUnavailable) for one in told)
