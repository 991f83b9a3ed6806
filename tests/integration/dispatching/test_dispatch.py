"""A dispatch, as the queue sees it."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.utils import timezone
from pytest_django import Settings

from kumiko_django import (
    Cron,
    PayloadError,
    PayloadTooLarge,
    SettingsError,
    TenantRequired,
    UnknownJobError,
    adispatch,
    adispatch_many,
    dispatch,
    dispatch_many,
    tenant_scope,
)
from kumiko_django.broker.producer import CHUNK_JOBS
from kumiko_django.types import ambient
from kumiko_django.types.ambient import TraceContext
from kumiko_django.types.origin import WriteOrigin
from tests.app.jobs import api_echo, flaky, record, system_job, typed
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.queues import QueueState
from tests.helpers.valkey import Valkey
from tests.integration.broker import servers
from tests.integration.worker.conftest import define
from tests.integration.worker.host_thread import Define

__all__ = ["define"]

pytestmark = pytest.mark.once

One = Callable[..., Any]
Many = Callable[..., Any]


@pytest.fixture
def queue(queue_state: QueueStateFactory) -> QueueState:
    return queue_state("worker")


one = pytest.mark.parametrize("send", [dispatch, async_to_sync(adispatch)], ids=["sync", "async"])
many = pytest.mark.parametrize(
    "send_many", [dispatch_many, async_to_sync(adispatch_many)], ids=["sync", "async"]
)


@one
def test_what_is_stored(send: One, queue: QueueState, queue_state: QueueStateFactory) -> None:
    """B015, B028, B031, B033, B040, B049, B081, P09: name, data and options, on the job's own
    lane."""
    before = time.time() * 1000
    sent = send(record, {"text": "Grüße"}, tenant_id="acme")
    assert (sent.status, sent.reason, bool(sent)) == ("queued", None, True)
    stored = queue.job(sent.job_id)
    assert stored.name == "testapp:job:record"
    assert stored.data == {"text": "Grüße", "_tenantId": "acme", "_v": 1}
    assert before - 1 <= stored.created_at <= time.time() * 1000
    assert stored.opts["removeOnComplete"] == {"age": 86_400}
    assert (stored.opts["attempts"], stored.opts["stackTraceLimit"]) == (1, 1)
    sent = send(api_echo, {}, tenant_id="acme")
    assert queue_state("api").wait == [sent.job_id]
    assert queue.job(send(flaky, tenant_id="acme").job_id).opts["backoff"] == {
        "type": "fixed",
        "delay": 100,
    }


@one
def test_the_surroundings_travel(send: One, queue: QueueState) -> None:
    """B046, B171, B045-B047, B168, B170: into the queue, from sync and from async code."""
    values: dict[Any, Any] = {
        ambient.trace: TraceContext("t" * 32, "s" * 16),
        ambient.correlation_id: "request-7",
        ambient.user_id: "42",
        ambient.write_origin: WriteOrigin("anonymous"),
    }
    with ambient.entered(values), tenant_scope("globex"):
        stored = queue.job(send(record, {"a": 1}).job_id)
    assert stored.data == {
        "a": 1,
        "_tenantId": "globex",
        "_triggeredById": "42",
        "_traceContext": {"traceId": "t" * 32, "spanId": "s" * 16},
        "_correlationId": "request-7",
        "_writeOrigin": {"root": "anonymous"},
        "_v": 1,
    }


@one
def test_due_later(send: One, queue: QueueState) -> None:
    """design 3: seconds, a timedelta, or a moment."""
    now = time.time()
    for due, options in (
        (now + 90, {"delay": 90}),
        (now + 90, {"delay": dt.timedelta(seconds=90)}),
        (now + 90, {"run_at": timezone.now() + dt.timedelta(seconds=90)}),
        (now + 9 * 365 * 86_400, {"delay": dt.timedelta(days=9 * 365)}),
    ):
        sent = send(record, {}, tenant_id="acme", **options)
        assert queue.due_at(sent.job_id) == pytest.approx(due, abs=5)
    passed = send(record, {}, tenant_id="acme", run_at=timezone.now() - dt.timedelta(days=1))
    assert queue.wait == [passed.job_id], "what has passed is now"


@one
def test_the_order_of_priorities(send: One, queue: QueueState) -> None:
    """B044, bullmq-python 3 (priority), design 3: high, newest first; normal; then numbers."""
    ids = {
        name: send(record, {}, tenant_id="acme", priority=priority).job_id
        for name, priority in (
            ("low", "low"), ("normal 1", "normal"), ("7", 7), ("high 1", "high"), ("1", 1),
            ("normal 2", 0), ("low 2", "low"), ("high 2", "high"),
        )
    }  # fmt: skip
    names = {job_id: name for name, job_id in ids.items()}
    assert [names[one] for one in queue.wait] == ["high 2", "high 1", "normal 1", "normal 2"]
    assert [names[one] for one in queue.prioritized] == ["1", "7", "low", "low 2"]


@one
def test_the_size_that_is_stored_is_the_size_that_is_limited(
    send: One, queue: QueueState, settings: Settings
) -> None:
    """bullmq-python 1.21, user-needs 6: to the byte; and nothing is left of what is over."""
    settings.KUMIKO = {**settings.KUMIKO, "MAX_PAYLOAD_BYTES": 1000}
    text = "ä€😀" + "x" * (1000 - len(json.dumps("ä€😀")) + 2)
    fits = text[: -len('{"text":"","_tenantId":"acme","_v":1}')]
    sent = send(record, {"text": fits}, tenant_id="acme")
    assert len(queue.job(sent.job_id).raw["data"].encode()) == 1000
    with pytest.raises(PayloadTooLarge, match=r"1,001 bytes.*MAX_PAYLOAD_BYTES"):
        send(record, {"text": fits + "x"}, tenant_id="acme")
    assert queue.pending() == 1


@one
def test_the_default_limit(send: One, queue: QueueState) -> None:
    """design 5: 512 KiB."""
    most = 512 * 1024 - len('{"text":"","_tenantId":"acme","_v":1}')
    assert send(record, {"text": "x" * most}, tenant_id="acme")
    with pytest.raises(PayloadTooLarge):
        send(record, {"text": "x" * (most + 1)}, tenant_id="acme")


WRONG: dict[str, tuple[type[Exception], Callable[[One], Any]]] = {
    "job": (UnknownJobError, lambda send: send("testapp:job:nothing", {}, tenant_id="acme")),
    "payload": (PayloadError, lambda send: send(record, {"a": object()}, tenant_id="acme")),
    "key": (PayloadError, lambda send: send(record, {"_tenantId": "x"}, tenant_id="acme")),
    "schema": (PayloadError, lambda send: send(typed, {}, tenant_id="acme")),
    "size": (PayloadTooLarge, lambda send: send(record, {"a": "x" * 600_000}, tenant_id="acme")),
    "tenant": (TenantRequired, lambda send: send(record, {})),
    "priority": (ValueError, lambda send: send(record, {}, tenant_id="acme", priority="urgent")),
    "delay": (ValueError, lambda send: send(record, {}, tenant_id="acme", delay=-1)),
    "time": (
        ValueError,
        lambda send: send(record, {}, tenant_id="acme", run_at=dt.datetime(2099, 1, 1)),  # noqa: DTZ001
    ),
    "user": (ValueError, lambda send: send(record, {}, tenant_id="acme", triggered_by=object())),
}


@one
@pytest.mark.parametrize("kind", list(WRONG))
def test_what_is_wrong_is_told_before_anything_connects(
    kind: str, send: One, settings: Settings
) -> None:
    """B026, B038: with Redis down too, the caller's own mistake is what it hears of."""
    error, mistake = WRONG[kind]
    with servers.silent() as port:
        settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": f"redis://127.0.0.1:{port}/0"}
        began = time.monotonic()
        with pytest.raises(error):
            mistake(send)
        assert time.monotonic() - began < 1


BAD_SETTINGS: list[dict[str, Any]] = [
    {"COMPLETED_AGE": 0},
    {"FAILED_AGE": -1},
    {"COMPLETED_AGE": 1.5},
    {"COMPLETED_AGES": 60},
    {"QUEUE_PREFIX": "a:b"},
]


@one
@pytest.mark.parametrize("wrong", BAD_SETTINGS)
def test_wrong_settings_open_no_socket(
    wrong: dict[str, Any], send: One, settings: Settings
) -> None:
    """B024, B026: bad retention raises with Redis down, and nobody is even asked."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
        settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": url, **wrong}
        with pytest.raises(SettingsError, match=next(iter(wrong))):
            send(record, {}, tenant_id="acme")
        listener.settimeout(0.05)
        with pytest.raises(TimeoutError):
            listener.accept()


def test_another_prefix_is_another_world(queue: QueueState, settings: Settings) -> None:
    """B032."""
    prefix = settings.KUMIKO["QUEUE_PREFIX"]
    settings.KUMIKO = {**settings.KUMIKO, "QUEUE_PREFIX": f"{prefix}-other"}
    sent = dispatch(record, {}, tenant_id="acme")
    assert queue.pending() == 0
    assert QueueState(queue.client, f"{prefix}-other-worker").wait == [sent.job_id]


def test_another_key_prefix(queue: QueueState, settings: Settings) -> None:
    """bullmq-python 3 (prefix): also with a hash tag."""
    settings.KUMIKO = {**settings.KUMIKO, "KEY_PREFIX": "{mine}"}
    sent = dispatch(record, {}, tenant_id="acme")
    sent_many = dispatch_many(record, [{}, {}], tenant_id="acme")
    other = QueueState(queue.client, queue.queue, "{mine}")
    assert other.wait == [each.job_id for each in (sent, *sent_many)]


def test_a_dispatch_needs_no_database(queue: QueueState) -> None:
    """design 2: no fixture gives access to one here, and pytest-django refuses any query."""
    assert dispatch(system_job, {})
    assert async_to_sync(adispatch)(system_job, {})
    assert queue.pending() == 2


def test_who_only_dispatches_starts_nothing(
    queue: QueueState, queue_state: QueueStateFactory, define: Define
) -> None:
    """B034: no scheduler, no boot job, no gate; those belong to a process that hosts the lane."""
    ran: list[str] = []

    def handler(payload: Any, ctx: Any) -> None:
        ran.append(ctx.job_name)

    define(handler, name="hourly", trigger=Cron("@hourly"), tenant="system")
    define(handler, name="seed", run_on_boot=True, tenant="system")
    define(handler, name="gate", boot_gate=True, tenant="system")
    sent = dispatch(define(handler, name="by-hand", tenant="system"))
    jobs = set(queue.client.scan_iter(match=f"{queue.base}:*", count=5000))
    bullmqs = {queue.key(name) for name in ("id", "meta", "marker", "events", "wait")}
    assert jobs - bullmqs == {queue.key(sent.job_id)}
    assert queue_state("api").counts() == dict.fromkeys(queue.counts(), 0)
    assert ran == []


# ---------------------------------------------------------------------------------------- in bulk


@many
def test_five_thousand_in_order(send_many: Many, queue: QueueState) -> None:
    """design 3: one answer a payload, and the queue has them in their order."""
    sent = send_many(record, ({"n": n} for n in range(5000)), tenant_id="acme")
    ids = [each.job_id for each in sent]
    assert queue.wait == ids
    for position in (0, CHUNK_JOBS - 1, CHUNK_JOBS, 2 * CHUNK_JOBS, 4999):
        assert queue.job(ids[position]).data["n"] == position


@many
def test_one_bad_payload_sends_nothing(send_many: Many, queue: QueueState) -> None:
    """design 3: all are checked before the first is sent; the message says which one it is."""
    payloads: list[Any] = [{"n": n} for n in range(1200)]
    payloads[1100] = {"n": {1, 2}}
    with pytest.raises(PayloadError, match=r"payloads\[1100\]: payload\.n is a") as raised:
        send_many(record, payloads, tenant_id="acme")
    assert raised.value.path == "payloads[1100].n"
    assert queue.pending() == 0


@many
def test_options_hold_for_all(send_many: Many, queue: QueueState) -> None:
    """B081: bulk is no way around anything."""
    payloads = [{"n": 1}, {"n": 2}]
    for sent in (
        send_many(flaky, payloads, tenant_id="acme", triggered_by=7, priority="low"),
        send_many(flaky, payloads, tenant_id="acme", triggered_by=7, delay=60),
    ):
        for number, each in enumerate(sent, 1):
            stored = queue.job(each.job_id)
            assert stored.data == {"n": number, "_tenantId": "acme", "_triggeredById": "7", "_v": 1}
            assert (stored.opts["attempts"], stored.opts["backoff"]["delay"]) == (4, 100)
            assert stored.opts["removeOnFail"] == {"age": 604_800}
    assert (len(queue.prioritized), len(queue.delayed)) == (2, 2)


def test_a_bulk_dispatch_leaves_the_loop_to_others(queue: QueueState) -> None:
    """bullmq-python 1.10: thousands of payloads are encoded and sent in portions."""

    async def main() -> int:
        turns = 0
        work = asyncio.create_task(
            adispatch_many(record, ({"n": n} for n in range(5000)), tenant_id="acme")
        )
        while not work.done():
            turns += 1
            await asyncio.sleep(0)
        assert len(await work) == 5000
        return turns

    assert asyncio.run(main()) >= 2 * 5000 // CHUNK_JOBS


def test_many_bulk_dispatches_at_once(queue: QueueState) -> None:
    """bullmq-python 1.5: the time limit is one of an exchange, not of everything around it."""

    async def main() -> None:
        payloads = [{"text": "x" * 500}] * 1000
        await asyncio.gather(
            *(adispatch_many(record, payloads, tenant_id="acme") for _ in range(15))
        )

    asyncio.run(main())
    assert queue.pending() == 15_000


class SlowLink:
    """Pass on what clients send at ``rate`` bytes a second, as a thin or busy line does."""

    def __init__(self, target: int, rate: int) -> None:
        self.target, self.rate = target, rate

    def __call__(self, connection: socket.socket, over: threading.Event) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        with socket.create_connection(("127.0.0.1", self.target)) as behind:
            back = threading.Thread(target=self._back, args=(behind, connection))
            back.start()
            while not over.is_set() and (data := connection.recv(16_384)):
                behind.sendall(data)
                over.wait(len(data) / self.rate)
            behind.shutdown(socket.SHUT_RDWR)
            back.join()

    @staticmethod
    def _back(behind: socket.socket, connection: socket.socket) -> None:
        try:
            while data := behind.recv(65536):
                connection.sendall(data)
        except OSError:
            return


@many
def test_bulk_over_a_slow_link(
    send_many: Many, settings: Settings, own_valkey: Valkey, queue_prefix: str
) -> None:
    """bullmq-python 1.5, 1.21: portions are limited in bytes, so each is within its time."""
    with servers.server(SlowLink(own_valkey.port, 2_500_000)) as slow:
        settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": f"redis://127.0.0.1:{slow}/0"}
        payloads = [{"text": "x" * 300_000}] * 30
        began = time.monotonic()
        assert len(send_many(record, payloads, tenant_id="acme")) == 30
        assert time.monotonic() - began > 3, "it did take longer than any single time limit"
    with own_valkey.client() as client:
        assert QueueState(client, f"{queue_prefix}-worker").pending() == 30
