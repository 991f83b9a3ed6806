"""What cannot be sent after a commit is logged and told, never raised: the request succeeded."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from pytest_django import Settings

from kumiko_django import (
    BrokerUnavailable,
    JobDefinition,
    KumikoError,
    adispatch,
    adispatch_many,
    tenant_scope,
)
from kumiko_django.broker import producer
from kumiko_django.signals import dispatch_failed
from tests.app.jobs import record, typed
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.queues import QueueState
from tests.helpers.valkey import Valkey, valkey
from tests.integration.broker import servers

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass(frozen=True)
class Told:
    sender: JobDefinition
    job_id: str
    tenant_id: str
    payload: dict[str, Any]
    error: KumikoError


@pytest.fixture
def told() -> Iterator[list[Told]]:
    """What ``dispatch_failed`` has told."""
    received: list[Told] = []

    def receiver(sender: JobDefinition, signal: object, **arguments: Any) -> None:
        received.append(Told(sender, **arguments))

    dispatch_failed.connect(receiver)
    yield received
    dispatch_failed.disconnect(receiver)


def point_to(settings: Settings, port: int) -> None:
    settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": f"redis://:s3cretpw@127.0.0.1:{port}/0"}


def test_it_is_logged_and_told_and_not_raised(
    settings: Settings, told: list[Told], caplog: pytest.LogCaptureFixture
) -> None:
    """user-needs 2: with everything that is needed to send it again by other means."""
    with servers.refused() as port:
        point_to(settings, port)
        with transaction.atomic():
            sent = record.dispatch({"n": 1}, tenant_id="acme")
    (one,) = told
    assert (one.sender, one.job_id) == (record.definition, sent.job_id)
    assert (one.tenant_id, one.payload) == ("acme", {"n": 1})
    assert isinstance(one.error, BrokerUnavailable)
    (line,) = [entry for entry in caplog.records if entry.name == "kumiko_django.dispatch"]
    assert line.levelno == logging.ERROR
    assert line.getMessage().startswith(
        f"testapp:job:record ({sent.job_id}) could not be queued after the commit: Redis at "
    )
    assert 'KUMIKO["REDIS_URL"]' in line.getMessage()
    assert "s3cretpw" not in caplog.text


def test_the_signal_gives_the_payload_as_it_would_have_travelled(
    settings: Settings, told: list[Told]
) -> None:
    """user-needs 2: encoded, so that it can be stored anywhere; without the metadata."""
    with servers.refused() as port:
        point_to(settings, port)
        with tenant_scope("globex"), transaction.atomic():
            reference = "9f4b0d2e-6f0b-4a37-9f0c-1f7cf0f4a001"
            payload = {"when": "2026-03-29T02:30:00Z", "amount": "1.50", "reference": reference}
            typed.dispatch(payload)
    (one,) = told
    assert one.tenant_id == "globex"
    assert set(one.payload) == {"when", "amount", "reference", "colour"}
    assert (one.payload["amount"], one.payload["colour"]) == ("1.50", "red")


@pytest.mark.parametrize("kind", ["silent", "refused"])
def test_twenty_in_one_commit_wait_once(
    kind: str, settings: Settings, told: list[Told], caplog: pytest.LogCaptureFixture
) -> None:
    """Must hold: a request with many dispatches answers within three seconds as well."""
    with getattr(servers, kind)() as port:
        point_to(settings, port)
        with transaction.atomic():
            sent = [record.dispatch({"n": n}, tenant_id="acme") for n in range(20)]
            began = time.monotonic()
        assert time.monotonic() - began < 3
    assert [one.job_id for one in told] == [each.job_id for each in sent]
    assert caplog.text.count("could not be queued") == 20


def test_slow_receivers_do_not_make_it_try_again(settings: Settings) -> None:
    """Must hold: a receiver that writes to a database between two callbacks is no new commit."""
    calls: list[float] = []

    def slow(sender: object, **arguments: Any) -> None:
        calls.append(time.monotonic())
        time.sleep(0.6)

    dispatch_failed.connect(slow)
    try:
        with servers.silent() as port:
            point_to(settings, port)
            with transaction.atomic():
                for n in range(3):
                    record.dispatch({"n": n}, tenant_id="acme")
    finally:
        dispatch_failed.disconnect(slow)
    assert len(calls) == 3
    assert max(later - sooner for sooner, later in itertools.pairwise(calls)) < 1.5


def test_the_next_commit_tries_again(own_valkey: Valkey, queue_prefix: str) -> None:
    """Must hold: one failure is no verdict on the next transaction, right after it."""
    own_valkey.stop()
    with transaction.atomic():
        record.dispatch({}, tenant_id="acme")
    own_valkey.start()
    with transaction.atomic():
        sent = record.dispatch({}, tenant_id="acme")
    with own_valkey.client() as client:
        assert QueueState(client, f"{queue_prefix}-worker").wait == [sent.job_id]


def test_a_receiver_that_fails_stops_nobody(
    settings: Settings, told: list[Told], caplog: pytest.LogCaptureFixture
) -> None:
    """P24: it is logged; the other receivers, jobs and callbacks have their turn."""

    def broken(sender: object, **arguments: Any) -> None:
        raise ZeroDivisionError

    ran: list[str] = []
    dispatch_failed.connect(broken)
    try:
        with servers.refused() as port:
            point_to(settings, port)
            with transaction.atomic():
                record.dispatch({}, tenant_id="acme")
                transaction.on_commit(lambda: ran.append("other"))
                record.dispatch({}, tenant_id="acme")
    finally:
        dispatch_failed.disconnect(broken)
    assert (len(told), ran) == (2, ["other"])


def test_settings_that_went_wrong_meanwhile(settings: Settings, told: list[Told]) -> None:
    """user-needs 2: whatever the reason, it is not raised into the request."""
    with transaction.atomic():
        record.dispatch({}, tenant_id="acme")
        settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": "redis://h:port"}
    assert "no usable Redis URL" in str(told[0].error)


def test_an_error_of_our_own(
    monkeypatch: pytest.MonkeyPatch, told: list[Told], caplog: pytest.LogCaptureFixture
) -> None:
    """user-needs 2: nor is a fault of this package, which no other test can provoke."""

    def fault(*arguments: Any) -> Any:
        raise TypeError("a fault")

    monkeypatch.setattr(producer, "add_many", fault)
    with transaction.atomic():
        record.dispatch({}, tenant_id="acme")
    assert "TypeError: a fault" in str(told[0].error)
    assert "Traceback" in caplog.text


def test_only_what_was_not_taken_is_reported(
    settings: Settings,
    queue_prefix: str,
    told: list[Told],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """user-needs 2: who sends the reported jobs again must not double the others."""
    with valkey(options={"maxmemory": "6mb", "maxmemory-policy": "noeviction"}) as server:
        settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": server.url}
        with transaction.atomic():
            payloads = [{"text": "x" * 2000, "n": n} for n in range(3000)]
            sent = record.dispatch_many(payloads, tenant_id="acme")
        with server.client() as client:
            stored = set(QueueState(client, f"{queue_prefix}-worker").wait)
    reported = [one.job_id for one in told]
    ids = [each.job_id for each in sent]
    assert 0 < len(reported) < 3000
    assert reported == ids[-len(reported) :], "the rest, in order"
    assert set(ids) == stored | set(reported), "nothing is lost without a word"
    # At most the portion in which it happened is uncertain.
    assert len(stored & set(reported)) <= producer.CHUNK_JOBS
    assert caplog.text.count("could not be queued") == 1, "one line for thousands"
    assert f" {len(told):,} jobs testapp:job:record ({reported[0]} and following) c" in caplog.text


def test_a_bulk_dispatch_says_how_far_it_got(settings: Settings) -> None:
    """P09: outside a transaction it is raised, with the number of those that are safe."""
    with valkey(options={"maxmemory": "6mb", "maxmemory-policy": "noeviction"}) as server:
        settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": server.url}
        payloads = [{"text": "x" * 2000} for _ in range(3000)]
        with pytest.raises(BrokerUnavailable, match=r"maxmemory.* [\d,]+ of 3,000 jobs had") as one:
            record.dispatch_many(payloads, tenant_id="acme")
        with pytest.raises(BrokerUnavailable, match=r" 0 of 3,000 jobs had been queued") as two:
            async_to_sync(adispatch_many)(record, payloads, tenant_id="acme")
    for raised in (one, two):
        assert "xxx" not in str(raised.value), "the payload is nobody's business"


def test_async_code_in_a_transaction(
    settings: Settings, told: list[Told], queue_state: QueueStateFactory
) -> None:
    """P64, user-needs 3: the commit belongs to the thread that the async code was called from."""

    async def work() -> str:
        return (await adispatch(record, {}, tenant_id="acme")).job_id

    with transaction.atomic():
        job_id = async_to_sync(work)()
        assert queue_state("worker").pending() == 0
    assert queue_state("worker").wait == [job_id]
    with servers.refused() as port:
        point_to(settings, port)
        with transaction.atomic():
            lost = async_to_sync(work)()
    assert [one.job_id for one in told] == [lost]
