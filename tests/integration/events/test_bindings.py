"""``bind_signal``: Django signals that announce events (B115-B117, P64)."""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group, User
from django.core import serializers
from django.core.exceptions import SynchronousOnlyOperation
from django.db import transaction
from django.db.models.signals import m2m_changed, post_delete, post_save
from django.dispatch import Signal
from django.test import TestCase
from django.utils.connection import ConnectionDoesNotExist

from kumiko_django import DefinitionError, On, ScopeError, bind_signal, tenant_scope
from kumiko_django.events.bindings import Binding
from tests.app.models import Order
from tests.helpers.fixtures import QueueStateFactory
from tests.helpers.queues import QueueState
from tests.integration.events.listeners import idle
from tests.integration.worker.host_thread import Define

pytestmark = pytest.mark.django_db(transaction=True)

TENANT: dict[str, Any] = {"tenant_id": "acme"}


class Bind(Protocol):
    """``bind``"""

    def __call__(self, signal: Signal, event: str = "event", **more: Any) -> Binding: ...


@pytest.fixture
def bind(define: Define) -> Iterator[Bind]:
    """Bind a signal for the length of the test; a job listens to the event ``event``."""
    define(idle, name="listens", trigger=On("event"))
    bound: list[Binding] = []

    def bind(signal: Signal, event: str = "event", **more: Any) -> Binding:
        bound.append(bind_signal(signal, event, **{**TENANT, **more}))
        return bound[-1]

    yield bind
    for binding in bound:
        binding.disconnect()


def payloads(queue: QueueState) -> list[dict[str, Any]]:
    """What was announced so far, in its order."""
    return [
        {key: value for key, value in queue.job(job_id).data.items() if not key.startswith("_")}
        for job_id in queue.wait
    ]


# -------------------------------------------------------------------------- signals of models


def test_saving(bind: Bind, queue: QueueState) -> None:
    """B117: by itself, row and whether it is new."""
    bind(post_save, sender=Order)
    order = Order.objects.create(tenant_id="acme", number="1")
    order.save(update_fields=["number"])
    common = {"model": "testapp.order", "pk": order.pk}
    assert payloads(queue) == [
        {**common, "created": True},
        {**common, "created": False, "update_fields": ["number"]},
    ]
    data = queue.job(queue.wait[0]).data
    assert (data["_triggerName"], data["_tenantId"]) == ("event", "acme")
    Group.objects.create(name="of another model")
    assert len(queue.wait) == 2


def test_functions_take_what_they_name(bind: Bind, queue: QueueState) -> None:
    """design 3: payload and condition, plain lambdas; the tenant may come from the row."""
    bind(
        post_save,
        sender=Order,
        payload=lambda instance: {"number": instance.number},
        when=lambda created: created,
        tenant_id=lambda instance, **more: instance.tenant_id if "signal" in more else None,
    )
    order = Order.objects.create(tenant_id="globex", number="7")
    order.save()
    (job_id,) = queue.wait
    assert queue.job(job_id).data["_tenantId"] == "globex"
    assert payloads(queue) == [{"number": "7"}]


def test_the_condition_of_the_job(define: Define, bind: Bind, queue: QueueState) -> None:
    """B116: looks at what the binding says."""
    define(idle, name="new-ones", trigger=On("saved", where={"created": True}))
    bind(post_save, "saved", sender=Order)
    Order.objects.create(tenant_id="acme", number="1").save()
    assert len(queue.wait) == 1


def test_many_to_many(bind: Bind, queue: QueueState) -> None:
    """design 3: any signal; the sender is the through model, as ever."""
    bind(
        m2m_changed,
        sender=User.groups.through,
        when=lambda action: action.startswith("post_"),
    )
    user, group = User.objects.create(username="u"), Group.objects.create(name="g")
    user.groups.add(group)
    user.groups.add(group)  # already there: Django says so with nothing in it
    user.groups.clear()
    common = {"model": "auth.user", "pk": user.pk, "reverse": False}
    assert payloads(queue) == [
        {**common, "action": "post_add", "pk_set": [group.pk]},
        {**common, "action": "post_add", "pk_set": []},
        {**common, "action": "post_clear"},
    ]


def test_deleting_waits_for_the_commit(bind: Bind, queue: QueueState) -> None:
    """P64: the key is still known, and a rollback takes the announcement with it."""
    bind(post_delete, sender=Order)
    order = Order.objects.create(tenant_id="acme", number="1")
    pk = order.pk
    with contextlib.suppress(ZeroDivisionError), transaction.atomic():
        Order.objects.all().delete()
        raise ZeroDivisionError
    assert queue.pending() == 0
    with transaction.atomic():
        order.delete()
        assert queue.pending() == 0
    assert payloads(queue) == [{"model": "testapp.order", "pk": pk}]


def test_the_database_that_it_was_saved_in(bind: Bind) -> None:
    """user-needs 2: the event waits for that one's commit, so it asks for it."""
    bind(post_save, sender=Order)
    with pytest.raises(ConnectionDoesNotExist, match="elsewhere"):
        post_save.send(sender=Order, instance=Order(pk=1), using="elsewhere")


def test_fixtures_are_not_announced(bind: Bind, queue: QueueState) -> None:
    """What loaddata and deserialized objects save happened somewhere else."""
    bind(post_save, sender=Order)
    text = serializers.serialize("json", [Order(pk=7, tenant_id="acme", number="1")])
    for loaded in serializers.deserialize("json", text):
        loaded.save()
    assert Order.objects.filter(pk=7).exists()
    assert queue.pending() == 0


def test_a_model_by_name(bind: Bind, queue: QueueState) -> None:
    """As in signal.connect: also before the model is loaded."""
    binding = bind(post_save, sender="testapp.Order")
    Order.objects.create(tenant_id="acme", number="1")
    binding.disconnect()
    Order.objects.create(tenant_id="acme", number="2")
    assert len(queue.wait) == 1


class InTestCases(TestCase):
    """P64, user-needs 39: as in the other tests of Django projects."""

    @pytest.fixture(autouse=True)
    def _give(self, queue_state: QueueStateFactory, bind: Bind) -> None:
        self.queue = queue_state("worker")
        bind(post_save, sender=Order)

    def test_captured(self) -> None:
        with self.captureOnCommitCallbacks(execute=True) as callbacks:
            Order.objects.create(tenant_id="acme", number="1")
            assert self.queue.pending() == 0
        assert len(callbacks) == len(self.queue.wait) == 1


# ------------------------------------------------------------------------------ other signals


def test_a_signal_of_the_hosts(bind: Bind, queue: QueueState) -> None:
    """design 3: with and without a sender, by send and by send_robust."""
    signal = Signal()
    bind(signal, sender=Order)
    signal.send(sender=Order, order=Order(pk=3), amounts=(1, 2), request=object())
    signal.send_robust(sender=Order, order=4)
    signal.send(sender=User, order=5)
    assert payloads(queue) == [{"order": 3, "amounts": [1, 2]}, {"order": 4}]


async def test_asend(bind: Bind, queue: QueueState) -> None:
    """design 3: a sync binding is called in a thread, one with async functions on the loop."""
    signal = Signal()
    bind(signal)
    bind(signal, payload=_later, when=_odd, tenant_id=_tenant)
    await signal.asend(sender=None, n=1)
    await signal.asend_robust(sender=None, n=2)
    # Django runs the sync receivers beside the async ones: which comes first is chance.
    came = [queue.job(job_id).data for job_id in queue.wait]
    assert sorted(
        (data["_tenantId"], *payload) for data, payload in zip(came, payloads(queue), strict=True)
    ) == [
        ("acme", "n"),
        ("acme", "n"),
        ("globex", "later"),
    ]
    assert sum(payload.get("n", 0) for payload in payloads(queue)) == 3


async def _later(n: int) -> dict[str, int]:
    return {"later": n}


async def _odd(n: int, **more: Any) -> bool:
    return n % 2 == 1


async def _tenant() -> str:
    return "globex"


def test_async_functions_and_sync_senders(bind: Bind, queue: QueueState) -> None:
    """P64: Django runs them on a loop of its own; the transaction is still that of the sender."""
    signal = Signal()
    bind(signal, payload=_later)
    with transaction.atomic():
        signal.send(sender=None, n=1)
        assert queue.pending() == 0
    assert payloads(queue) == [{"later": 1}]


async def test_a_sync_send_on_the_loop_is_refused(bind: Bind) -> None:
    """design 2: asend is the way."""
    signal = Signal()
    bind(signal)
    with pytest.raises(SynchronousOnlyOperation):
        signal.send(sender=None)


# -------------------------------------------------------------------------------- connections


def test_lambdas_live_as_long_as_their_binding(bind: Bind, queue: QueueState) -> None:
    """Django holds receivers weakly unless told otherwise; nobody else holds these."""
    signal = Signal()
    bind_signal(signal, "event", payload=lambda: {"n": 1}, **TENANT)
    gc.collect()
    signal.send(sender=None)
    assert payloads(queue) == [{"n": 1}]


def test_bound_again_it_is_bound_once(bind: Bind, queue: QueueState) -> None:
    """A ready() that runs twice; the last one counts."""
    signal = Signal()

    def ready(value: int) -> None:
        bind(signal, payload=lambda: {"n": value})

    ready(1)
    ready(2)
    signal.send(sender=None)
    assert payloads(queue) == [{"n": 2}]


def test_different_bindings_of_one_event(bind: Bind, queue: QueueState) -> None:
    """Told apart by their functions, by sender, or by a dispatch_uid."""
    signal = Signal()
    bind(signal, payload=lambda: {"n": 1})
    bind(signal, payload=lambda: {"n": 2})
    bind(signal, sender=Order, payload=lambda: {"n": 3})
    for n in (4, 5):
        bind(signal, payload=lambda n=n: {"n": n}, dispatch_uid=f"loop-{n}")
    signal.send(sender=Order)
    assert [payload["n"] for payload in payloads(queue)] == [1, 2, 3, 4, 5]


def test_a_module_that_is_reloaded(
    bind: Bind, queue: QueueState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Autoreload: the module's newest functions count, once."""
    module = tmp_path / "kumiko_bound_module.py"
    module.write_text(
        "from kumiko_django import bind_signal\n"
        "from tests.integration.events.test_bindings import RELOADED\n"
        "bind_signal(RELOADED, 'event', payload=lambda: {'n': VALUE}, tenant_id='acme')\n"
        "VALUE = globals().get('VALUE', 0) + 1\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    loaded = importlib.import_module("kumiko_bound_module")
    importlib.reload(loaded)
    importlib.reload(loaded)
    RELOADED.send(sender=None)
    assert payloads(queue) == [{"n": 3}]
    assert len(RELOADED.receivers) == 1
    del sys.modules["kumiko_bound_module"]


RELOADED = Signal()


def test_disconnecting(bind: Bind, queue: QueueState) -> None:
    """What a test binds, it can take away again; another binding stays."""
    signal = Signal()
    bind(signal, payload=lambda: {"n": 1}).disconnect()
    bind(signal, payload=lambda: {"n": 2})
    signal.send(sender=None)
    assert payloads(queue) == [{"n": 2}]
    assert "event" in repr(bind(signal))


def test_while_no_job_listens_nothing_is_called(bind: Bind, queue: QueueState) -> None:
    """B123: a signal that is sent often costs next to nothing."""
    signal = Signal()
    called: list[str] = []
    bind(signal, "nobody", payload=lambda: called.append("payload"))
    bind(signal, "nobody", when=_odd)
    signal.send(sender=None)
    assert called == []
    assert queue.pending() == 0


def test_errors_reach_the_sender(bind: Bind, queue: QueueState) -> None:
    """A receiver's error is the sender's, as ever; send_robust catches it."""
    signal = Signal()
    bind(signal, payload=lambda missing: {"n": missing})
    with pytest.raises(DefinitionError, match="missing"):
        signal.send(sender=None)
    ((_, error),) = signal.send_robust(sender=None)
    assert isinstance(error, DefinitionError)
    with tenant_scope("globex"), pytest.raises(ScopeError, match="event"):
        signal.send(sender=None, missing=1)
    assert queue.pending() == 0


def test_async_to_sync_of_a_sender(bind: Bind, queue: QueueState) -> None:
    """P64: async code that was called in a transaction sends into that transaction."""
    signal = Signal()
    bind(signal)
    bind(signal, payload=_later)

    async def work() -> None:
        await signal.asend(sender=None, n=1)

    with transaction.atomic():
        async_to_sync(work)()
        assert queue.pending() == 0
    assert len(queue.wait) == 2
