"""What may be said about an event, and what is refused (B117, B119, B120, P67, P69)."""

from __future__ import annotations

import datetime as dt
import enum
import re
import uuid
from typing import Any

import pytest

from kumiko_django import PayloadError
from kumiko_django.broker.keys import event_job_id
from kumiko_django.events.event import Event

pytestmark = pytest.mark.once

ID = uuid.UUID("9f4b0d2e-6f0b-4a37-9f0c-1f7cf0f4a001")


class Number(enum.IntEnum):
    SEVEN = 7


def event(payload: object = None, event_id: object = None, headers: object = None) -> Event:
    return Event.of("order.placed", payload, event_id, headers)


def test_without_an_id_it_has_no_source() -> None:
    """B117, B122: the handler sees an event only where there is one to be recognised."""
    assert event().source is None
    assert event({"n": 1}).encoded == {"n": 1}


@pytest.mark.parametrize(
    ("given", "text"),
    [("e-1", "e-1"), (7, "7"), (Number.SEVEN, "7"), (ID, str(ID)), ("ü ü", "ü ü")],
)
def test_ids(given: object, text: str) -> None:
    """B120: text, whatever it is to the caller."""
    source = event(event_id=given).source
    assert source is not None
    assert (source.id, source.headers) == (text, {})


def test_headers() -> None:
    """B120: single values, encoded like a payload; with an id in any case, since it is needed."""
    given = {"a": "x", "b": 1, "c": 1.5, "d": True, "when": dt.date(2026, 3, 29)}
    source = event(event_id="e", headers=given).source
    assert source is not None
    assert source.headers == {**given, "when": "2026-03-29"}
    one, two = event(headers={"a": 1}).source, event(headers={"a": 1}).source
    assert one is not None
    assert two is not None
    assert one.id != two.id


def test_the_payload_is_kept_and_encoded() -> None:
    """P33: conditions look at what travels, schemas at what was given."""
    when = dt.datetime(2026, 3, 29, 2, 30, tzinfo=dt.UTC)
    made = event({"when": when})
    assert made.payload == {"when": when}
    assert made.encoded == {"when": "2026-03-29T02:30:00Z"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("",), "The name of an event is a text"),
        ((5,), "not 5"),
        (("a ",), "space at an end"),
        (("a\0",), "control characters"),
        (("e", None, ""), "event_id must be a UUID"),
        (("e", None, True), "not True"),
        (("e", None, 1.5), "not 1.5"),
        (("e", None, "x" * 256), "1 to 255 printable"),
        (("e", None, "a\nb"), "printable"),
        (("e", None, 10**300), "1 to 255"),
        (("e", None, None, [1]), "headers must be a mapping"),
        (("e", None, None, {"a": None}), "'a' is None. Leave out"),
        (("e", None, None, {"a": {}}), "put the rest into the payload"),
        (("e", None, None, {1: "a"}), "headers must be a mapping of names"),
        (("e", None, None, {"a": object()}), r"headers\['a'\]"),
    ],
)
def test_what_is_refused(arguments: tuple[Any, ...], message: str) -> None:
    """B119: at once, by name, whoever listens."""
    with pytest.raises(ValueError, match=message):
        Event.of(*(*arguments, None, None, None)[:4])


@pytest.mark.parametrize(
    ("payload", "path", "message"),
    [
        ({"_tenantId": "acme"}, "payload._tenantId", "reserved for metadata"),
        ({"a": {"b": float("nan")}}, "payload.a.b", "nan"),
        ([1], "payload", "must be a mapping of names to values, not list"),
        ("text", "payload", "not str"),
    ],
)
def test_payloads_that_cannot_travel(payload: object, path: str, message: str) -> None:
    """B078, P67, P69: an event's payload carries no metadata either."""
    with pytest.raises(PayloadError, match=f"event order.placed: .*{message}") as raised:
        event(payload)
    assert raised.value.path == path


def test_job_ids() -> None:
    """P65, P40: one for each event, job and tenant; for BullMQ no integer and without a colon."""
    parts = ("order.placed", "1", "shop:job:mail", "acme")
    job_id = event_job_id(*parts)
    assert re.fullmatch(r"event-shop-job-mail-[0-9a-f]{32}", job_id)
    assert event_job_id(*parts) == job_id
    others = {event_job_id(*(*parts[:i], "other", *parts[i + 1 :])) for i in range(4)}
    assert len(others | {job_id}) == 5
    assert event_job_id("a", "1b", "j", "t") != event_job_id("a1", "b", "j", "t")
    assert len(event_job_id("x" * 200, "y" * 255, "z" * 200, "t" * 128)) <= 255


@pytest.mark.parametrize("name", ["shop:write:create-order", "shop:query:orders"])
def test_only_a_handler_sends_the_event_of_its_name(name: str) -> None:
    """Surroundings 6: for successful results; nobody else can say that there was one."""
    with pytest.raises(ValueError, match="is that of a handler, and only a write"):
        Event.of(name, {}, None, None)
    assert Event.of(name, {}, None, None, of_handler=True).name == name
    for other in ("shop:write", "shop:write:Order", "shop:job:send", "a:b:c"):
        assert Event.of(other, {}, None, None).name == other
