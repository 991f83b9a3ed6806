"""What travels: one flat object, written strictly and read with care (design 5)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from pytest_django import Settings

from kumiko_django import PayloadError, PayloadTooLarge
from kumiko_django.broker.envelope import (
    Envelope,
    Metadata,
    TriggerEvent,
    read_metadata,
    read_payload,
)
from kumiko_django.types.ambient import TraceContext
from kumiko_django.types.correlation import clean_correlation_id
from kumiko_django.types.origin import MalformedOrigin, WriteOrigin

pytestmark = pytest.mark.once

EVERYTHING = Metadata(
    tenant_id="acme",
    triggered_by_id="7",
    trigger_name="order.paid",
    trigger_event=TriggerEvent("e-1", {"a": "x", "b": 1, "c": 1.5, "d": True}),
    trace=TraceContext("t" * 32, "s" * 16),
    correlation_id="c-1",
    write_origin=WriteOrigin("anonymous", "testapp:job:first"),
)


def test_everything_comes_back() -> None:
    """B045-B048, B117, B230: with the original's spelling, flat beside the payload."""
    data = Envelope({"a": 1, "tenantId": "x"}, EVERYTHING).to_data()
    assert data == {
        "a": 1,
        "tenantId": "x",
        "_tenantId": "acme",
        "_triggeredById": "7",
        "_triggerName": "order.paid",
        "_triggerEvent": {"id": "e-1", "headers": {"a": "x", "b": 1, "c": 1.5, "d": True}},
        "_traceContext": {"traceId": "t" * 32, "spanId": "s" * 16},
        "_correlationId": "c-1",
        "_writeOrigin": {"root": "anonymous", "viaJob": "testapp:job:first"},
        "_v": 1,
    }
    assert read_metadata(data) == EVERYTHING
    assert read_payload(data) == {"a": 1, "tenantId": "x"}


def test_what_is_not_there_is_absent() -> None:
    """B236: no key, not null."""
    assert Envelope({}).to_data() == {"_v": 1}
    assert read_metadata({"_v": 1}) == Metadata()


def test_the_payload_is_what_has_no_underscore() -> None:
    """B072: whoever wrote it, other producers' keys included."""
    assert read_payload({"a": 1, "_b": 2, "_": 3, "c_": 4, "": 5}) == {"a": 1, "c_": 4, "": 5}


@pytest.mark.parametrize("data", [None, [], "text", 7])
def test_data_that_is_no_object_is_refused(data: Any) -> None:
    with pytest.raises(PayloadError, match="not an object"):
        read_payload(data)
    with pytest.raises(PayloadError, match="not an object"):
        read_metadata(data)


@pytest.mark.parametrize(
    ("stored", "read"),
    [
        ("acme", "acme"),
        (7, "7"),
        (0, "0"),
        ("", None),
        (None, None),
        (True, None),
        (1.5, None),
        ({"id": 1}, None),
        (["acme"], None),
    ],
)
def test_texts_of_others(stored: Any, read: str | None) -> None:
    """B076, B077, design 5: numbers are keys of somebody's table; the rest is as good as absent."""
    for key, attribute in (
        ("_tenantId", "tenant_id"),
        ("_triggeredById", "triggered_by_id"),
        ("_triggerName", "trigger_name"),
    ):
        assert getattr(read_metadata({key: stored}), attribute) == read


def test_a_plain_tenant_id_names_nobody() -> None:
    """P67, design (not B076): neither in the payload nor as a fallback."""
    meta = read_metadata({"tenantId": "globex", "tenant_id": "globex", "_tenant": "globex"})
    assert meta.tenant_id is None
    assert read_metadata({"tenantId": "globex", "_tenantId": "acme"}).tenant_id == "acme"


@pytest.mark.parametrize(
    "stored",
    [
        None,
        "e-1",
        [],
        {},
        {"id": "e-1"},
        {"id": 1, "headers": {}},
        {"headers": {}},
        {"id": "e-1", "headers": []},
        {"id": "e-1", "headers": {"a": None}},
        {"id": "e-1", "headers": {"a": {"nested": 1}}},
        {"id": "e-1", "headers": {"a": ["x"]}},
    ],
)
def test_a_malformed_event_is_no_event(stored: Any) -> None:
    """B073, B120: the run goes on without it."""
    assert read_metadata({"_triggerEvent": stored, "_tenantId": "a"}).trigger_event is None


def test_a_well_formed_event() -> None:
    """B073: text, numbers and booleans as headers; more beside them is left out."""
    stored = {"id": "e-1", "headers": {"a": "", "b": 0, "c": False}, "more": 1}
    assert read_metadata({"_triggerEvent": stored}).trigger_event == TriggerEvent(
        "e-1", {"a": "", "b": 0, "c": False}
    )


@pytest.mark.parametrize(
    "stored",
    [
        None,
        "t",
        {},
        {"traceId": "t"},
        {"spanId": "s"},
        {"traceId": "", "spanId": "s"},
        {"traceId": "t", "spanId": None},
        {"traceId": 1, "spanId": 2},
    ],
)
def test_a_trace_is_both_ids_or_nothing(stored: Any) -> None:
    """B074."""
    assert read_metadata({"_traceContext": stored}).trace is None


@pytest.mark.parametrize("sampled", [True, False])
def test_a_trace_travels_in_both_forms(sampled: bool) -> None:
    """B046, P91: the original reads one of them, everybody else the other, with its flag."""
    trace = TraceContext("a" * 32, "b" * 16, sampled)
    data = Envelope({}, Metadata(trace=trace)).to_data()
    assert data["_traceContext"] == {"traceId": "a" * 32, "spanId": "b" * 16}
    assert data["_traceparent"] == f"00-{'a' * 32}-{'b' * 16}-{'01' if sampled else '00'}"
    assert read_metadata(data).trace == trace


@pytest.mark.parametrize("header", [None, 7, "", "nonsense", f"00-{'0' * 32}-{'b' * 16}-01"])
def test_a_malformed_traceparent_is_dropped(header: Any) -> None:
    """P91: and what the original has written counts."""
    stored = {"traceId": "c" * 32, "spanId": "d" * 16}
    assert read_metadata({"_traceparent": header}).trace is None
    both = {"_traceparent": header, "_traceContext": stored}
    assert read_metadata(both).trace == TraceContext("c" * 32, "d" * 16)


def test_a_trace_is_two_ids_and_no_more() -> None:
    """B074: further fields are dropped, and nobody's novel is kept."""
    stored = {"traceId": "t" * 1000, "spanId": "s", "baggage": "x"}
    assert read_metadata({"_traceContext": stored}).trace == TraceContext("t" * 64, "s")


@pytest.mark.parametrize(
    "stored",
    ["anonymous", [], 7, True, {}, {"root": "nobody"}, {"root": None}, {"root": ["user"]},
     {"root": "user", "viaJob": 7}, {"viaJob": "x"}],
)  # fmt: skip
def test_a_malformed_origin_refuses_the_run(stored: Any) -> None:
    """B133, B172: who may write personal data is not guessed."""
    with pytest.raises(MalformedOrigin):
        read_metadata({"_writeOrigin": stored})


def test_a_good_origin() -> None:
    """B172: what else stands in it is not looked at."""
    for root in ("anonymous", "user", "system"):
        assert read_metadata({"_writeOrigin": {"root": root, "more": 1}}).write_origin == (
            WriteOrigin(root)
        )


def test_correlation_ids_of_others_are_checked_too() -> None:
    """P92: what came through Redis ends up in the same logs."""
    assert read_metadata({"_correlationId": "a\nb"}).correlation_id is None
    assert read_metadata({"_correlationId": "c-1"}).correlation_id == "c-1"
    assert clean_correlation_id(7) is None


def test_the_trigger_of_a_payload_is_no_metadata() -> None:
    """B078, P67: a payload that names metadata does not get as far as Redis."""
    with pytest.raises(PayloadError, match=r"payload\._triggerName"):
        Envelope({"_triggerName": "x"}, EVERYTHING).to_data()


def test_one_envelope_for_many_tenants_is_what_each_would_be() -> None:
    """user-needs 23, P44: encoded once, and yet each tenant's data are its own."""
    meta = Metadata(
        tenant_id="of the wrapper", triggered_by_id="user-7", correlation_id="chain-1",
        parent_run=UUID(int=7),
    )  # fmt: skip
    envelopes = Envelope({"n": [1, "ä"]}, meta).for_tenants()
    for tenant in ("acme", 'qu"ote', "ä", "a\\b"):
        data, text = envelopes.encode(tenant)
        expected = Envelope({"n": [1, "ä"]}, replace(meta, tenant_id=tenant)).to_data()
        assert json.loads(text) == data == expected
    assert read_metadata(envelopes.encode("acme")[0]) == replace(meta, tenant_id="acme")


def test_a_child_may_be_larger_than_its_wrapper(settings: Settings) -> None:
    """What was accepted as a wrapper is not refused as a child, whose metadata are longer."""
    envelope = Envelope({"n": 1}, Metadata(tenant_id="a", parent_run=UUID(int=7)))
    settings.KUMIKO = {**settings.KUMIKO, "MAX_PAYLOAD_BYTES": 20}
    with pytest.raises(PayloadTooLarge):
        envelope.encode()
    assert envelope.for_tenants().encode("b")[0]["_tenantId"] == "b"


@pytest.mark.parametrize("value", [None, 7, "", "x", "0" * 31, ["a"], {}])
def test_a_parent_that_is_no_run_is_none(value: object) -> None:
    assert read_metadata({"_parentRunId": value}).parent_run is None
