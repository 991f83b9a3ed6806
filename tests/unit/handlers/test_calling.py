"""What becomes of a call: payloads, results, transactions, and what survives an error."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.transaction import TransactionManagementError
from pydantic import BaseModel, ConfigDict

from kumiko_django import KumikoError, PayloadError, tenant_scope
from kumiko_django.handlers import HandlerContext, query, write
from tests.app.models import Order
from tests.unit.handlers.kit import both_kinds, both_queries, both_writes, defines

pytestmark = pytest.mark.django_db

ANYBODY = ["anonymous"]


class NewOrder(BaseModel):
    model_config = ConfigDict(extra="forbid")

    number: str
    due: dt.date
    amount: decimal.Decimal = decimal.Decimal("1.50")


@pytest.fixture(autouse=True)
def _scope() -> Any:
    with tenant_scope("acme"):
        yield


def numbers() -> list[str]:
    return list(Order.objects.values_list("number", flat=True))


@both_kinds
def test_a_payload_goes_through_the_schema_and_a_result_through_json(kind: str, call: Any) -> None:
    """P33, P71: the function gets typed values, the caller what JSON has."""
    got: list[NewOrder] = []

    def handler(payload: NewOrder, ctx: HandlerContext) -> Any:
        got.append(payload)
        return {"due": payload.due, "amount": payload.amount, "numbers": (1, 2)}

    name = defines(kind, handler, schema=NewOrder, roles=ANYBODY)
    result = call(name, {"number": "A1", "due": "2026-03-29"})

    assert got == [NewOrder(number="A1", due=dt.date(2026, 3, 29))]
    assert result == {"due": "2026-03-29", "amount": "1.50", "numbers": [1, 2]}


@both_kinds
def test_without_a_schema_a_handler_gets_its_own_copy(kind: str, call: Any) -> None:
    given = {"lines": [1, 2]}

    def handler(payload: Any, ctx: HandlerContext) -> Any:
        payload["lines"].append(3)
        return payload

    name = defines(kind, handler, roles=ANYBODY)

    assert call(name, given) == {"lines": [1, 2, 3]}
    assert given == {"lines": [1, 2]}


@both_kinds
@pytest.mark.parametrize(
    ("payload", "path"),
    [
        ({"number": "A1"}, "payload.due"),
        ({"number": "A1", "due": "soon"}, "payload.due"),
        ({"number": "A1", "due": "2026-03-29", "tenant": "globex"}, "payload.tenant"),
        (5, "payload"),
    ],
    ids=["missing", "wrong", "more", "no object"],
)
def test_a_payload_that_does_not_fit_is_refused(
    kind: str, call: Any, payload: Any, path: str
) -> None:
    name = defines(kind, lambda p, c: pytest.fail("called"), schema=NewOrder, roles=ANYBODY)

    with pytest.raises(PayloadError, match=name) as raised:
        call(name, payload)
    assert raised.value.path == path


@both_writes
@pytest.mark.parametrize(
    "payload", [{"_tenantId": "globex"}, {"x": object()}, [1], "text"], ids=str
)
def test_a_payload_that_could_not_be_an_event_is_refused_first(call: Any, payload: Any) -> None:
    """P67: nothing in a payload is taken for metadata."""
    name = defines("write", lambda p, c: pytest.fail("called"), roles=ANYBODY)

    with pytest.raises(PayloadError, match=name):
        call(name, payload)


@both_writes
def test_an_event_id_that_is_none_is_refused_first(call: Any) -> None:
    name = defines("write", lambda p, c: pytest.fail("called"), roles=ANYBODY)

    with pytest.raises(ValueError, match="event_id must be"):
        call(name, {}, event_id="")


# ------------------------------------------------------------------------------------- transactions


@both_writes
def test_a_write_is_all_or_nothing(call: Any) -> None:
    def handler(payload: Any, ctx: HandlerContext) -> None:
        Order.objects.create(tenant_id=ctx.tenant_id, number="A1")
        assert connection.in_atomic_block
        if payload:
            raise RuntimeError("on purpose")

    name = defines("write", handler, roles=ANYBODY)

    with pytest.raises(RuntimeError):
        call(name, {"fails": True})
    assert numbers() == []
    call(name)
    assert numbers() == ["A1"]


@both_writes
def test_a_result_that_cannot_travel_rolls_back(call: Any) -> None:
    """What the caller is told is an error has not happened."""

    def handler(payload: Any, ctx: HandlerContext) -> Any:
        return {"order": Order.objects.create(tenant_id=ctx.tenant_id, number="A1")}

    name = defines("write", handler, roles=ANYBODY)

    with pytest.raises(PayloadError, match=rf"{name}: the result\.order is a .*primary key"):
        call(name)
    assert numbers() == []


@both_writes
def test_a_success_is_a_commit(call: Any) -> None:
    """A handler that catches a database's error in its own transaction has written nothing."""

    def handler(payload: Any, ctx: HandlerContext) -> str:
        Order.objects.create(tenant_id="acme", number="A1")
        try:
            with transaction.atomic(savepoint=False):
                raise IntegrityError("on purpose")  # noqa: TRY301 - it is the block's own
        except IntegrityError:
            return "done"

    name = defines("write", handler, roles=ANYBODY)

    with pytest.raises(TransactionManagementError, match=f"{name} returned, but its transaction"):
        call(name)
    assert numbers() == []


@both_writes
def test_inside_a_transaction_a_failed_write_undoes_itself_alone(call: Any) -> None:
    def handler(payload: Any, ctx: HandlerContext) -> None:
        Order.objects.create(tenant_id="acme", number=payload["number"])
        if payload.get("fails"):
            raise RuntimeError("on purpose")

    name = defines("write", handler, roles=ANYBODY)

    if call is write:
        with transaction.atomic():
            call(name, {"number": "kept"})
            with pytest.raises(RuntimeError):
                call(name, {"number": "undone", "fails": True})
        assert numbers() == ["kept"]
    with pytest.raises(RuntimeError):
        call(name, {"number": "undone", "fails": True})
    assert "undone" not in numbers()


# ------------------------------------------------------------------------------------------- async


@both_queries
def test_a_query_may_be_async(call: Any) -> None:
    Order.objects.create(tenant_id="acme", number="A1")

    async def handler(payload: Any, ctx: HandlerContext) -> Any:
        return [order.number async for order in Order.objects.all()]

    assert call(defines("query", handler, roles=ANYBODY)) == ["A1"]


@both_kinds
def test_a_function_around_an_async_one_is_found_out(kind: str, call: Any) -> None:
    async def work() -> None: ...

    name = defines(kind, lambda payload, ctx: work(), roles=ANYBODY)

    with pytest.raises(KumikoError, match=f"{name} returned a coroutine, which nobody awaits"):
        call(name)


def test_what_a_query_raises_reaches_the_caller_as_it_is() -> None:
    def handler(payload: Any, ctx: HandlerContext) -> None:
        raise Order.DoesNotExist("no such order")

    with pytest.raises(Order.DoesNotExist, match="no such order"):
        query(defines("query", handler, roles=ANYBODY))
