"""A run's whole record as one text: it waits in Redis, and goes to the database (design 9, P32)."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import sys
import threading
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from kumiko_django.history.clean import clean_row
from kumiko_django.history.events import LogLine, RunEnded, RunStarted
from kumiko_django.history.record import UnreadableRecord, decode, encode, row_of
from tests.unit.history.events import ended, line, started
from tests.unit.history.odd import PAYLOADS, TEXTS, nested

pytestmark = pytest.mark.once

Event = RunStarted | RunEnded | LogLine


def cleaned(event: Event) -> Any:
    """The event as every database stores it."""
    values = {field.name: getattr(event, field.name) for field in dataclasses.fields(event)}
    return type(event)(**clean_row(values))


every_payload = pytest.mark.parametrize("value", list(PAYLOADS.values()), ids=list(PAYLOADS))
every_text = pytest.mark.parametrize("text", list(TEXTS.values()), ids=list(TEXTS))


@every_payload
def test_odd_values_come_back_as_they_are_stored(value: Any) -> None:
    """P32: payload, result and progress; what no database stores is replaced, all else is kept."""
    start = started(payload=value)
    end = ended(start.run_id, result=value, progress=value)
    text = encode(start, end)
    assert decode(text) == (cleaned(start), cleaned(end), [])
    assert "\n" not in text
    text.encode()


@every_text
def test_odd_texts_come_back_as_they_are_stored(text: str) -> None:
    """P32: also the id that another producer has given, and an error's text."""
    start = started(
        f"id{text}", job_name=f"n{text}", tenant_id=text, worker=text, triggered_by_id=text,
        trigger=text, correlation_id=text, trace_id=text,
    )  # fmt: skip
    end = ended(
        start.run_id, status="failed", final=False, reason=text, error=text, traceback=text,
        fingerprint=text, object_ref=text,
    )  # fmt: skip
    assert decode(encode(start, end)) == (cleaned(start), cleaned(end), [])


def test_long_texts_are_cut_where_a_column_has_an_end() -> None:
    """An error and its traceback have none."""
    start = started("x" * 300, tenant_id="t" * 300)
    end = ended(start.run_id, error="e" * 300, reason="r" * 300)
    first, last, _ = decode(encode(start, end))
    assert (len(first.queue_job_id), len(first.tenant_id)) == (255, 128)
    assert (len(last.error), len(last.reason)) == (300, 255)


@every_text
def test_log_lines_travel_with_the_run(text: str) -> None:
    """B177: those that are not on record yet, in their order."""
    start = started()
    end = ended(start.run_id)
    lines = [
        line(7, text, key=text, n=1),
        line(8, "second", deep={"list": [1, None]}),
        LogLine(9, "error", "no data", {}, dt.datetime.now(dt.UTC)),
    ]
    record = encode(start, end, lines)
    assert decode(record) == (start, end, [cleaned(each) for each in lines])
    assert record.count("\n") == 1
    assert row_of(record) == encode(start, end)
    assert row_of(encode(start, end)) == encode(start, end)


def test_times_keep_their_moment_to_the_microsecond() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    moments: dict[str, Any] = {
        "queue_created_at": dt.datetime(2026, 10, 25, 2, 30, tzinfo=berlin, fold=1),
        "enqueued_at": dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
        "started_at": dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC),
    }
    start = started(**moments)
    first, _, _ = decode(encode(start, ended(start.run_id)))
    assert {name: getattr(first, name).timestamp() for name in moments} == {
        name: moment.timestamp() for name, moment in moments.items()
    }


def test_losses_travel_though_they_are_no_column() -> None:
    """Design 9: whoever writes the record adds the lost runs, as its own worker would have."""
    start = started(start=4, losses=3)
    assert decode(encode(start, ended(start.run_id)))[0].losses == 3


def test_a_run_that_lives_is_written_as_running() -> None:
    start = started()
    row = json.loads(encode(start, None))
    assert (row["status"], row["id"]) == ("running", str(start.run_id))
    assert "finished_at" not in row


def good() -> dict[str, Any]:
    start = started()
    found: dict[str, Any] = json.loads(encode(start, ended(start.run_id)))
    return found


BROKEN: dict[str, Callable[[], str]] = {
    "nothing": lambda: "",
    "no JSON": lambda: "certainly not",
    "half of one": lambda: json.dumps(good())[:-40],
    "a list": lambda: "[]",
    "a number": lambda: "7",
    "null": lambda: "null",
    "an empty object": lambda: "{}",
    "a running one": lambda: encode(started(), None),
    "no id": lambda: json.dumps({**good(), "id": "job-1"}),
    "an id of another kind": lambda: json.dumps({**good(), "id": 5}),
    "no time": lambda: json.dumps({**good(), "started_at": "yesterday"}),
    "a time of another kind": lambda: json.dumps({**good(), "finished_at": 1}),
    "a time without a zone": lambda: json.dumps({**good(), "finished_at": "2026-01-01T00:00:00"}),
    "a payload that is no text": lambda: json.dumps({**good(), "payload": {"n": 1}}),
    "a payload that is no JSON": lambda: json.dumps({**good(), "payload": "{"}),
    "a payload that has no end": lambda: json.dumps({**good(), "payload": "[" * 100_000}),
    "a row that has no end": lambda: "[" * 100_000,
    "a start that is a text": lambda: json.dumps({**good(), "start": "1"}),
    "a job's id that is a number": lambda: json.dumps({**good(), "queue_job_id": 1}),
    "lines that are none": lambda: f"{json.dumps(good())}\n[1]",
    "lines without a list": lambda: f"{json.dumps(good())}\n7",
    "lines of another kind": lambda: f'{json.dumps(good())}\n[{{"text": "a"}}]',
    "lines that are no JSON": lambda: f"{json.dumps(good())}\n[",
}


@pytest.mark.parametrize("broken", list(BROKEN.values()), ids=list(BROKEN))
def test_what_is_no_record_is_said_to_be_none(broken: Callable[[], str]) -> None:
    """Design 1: what comes out of Redis is checked. Recovery drops it and goes on with the rest."""
    with pytest.raises(UnreadableRecord, match="no record of a run"):
        decode(broken())


def test_what_one_thread_could_write_every_thread_can_read() -> None:
    """How deep Python's JSON goes depends on how deep its caller stands; a record must not."""
    start = started(payload=nested(900))
    text = encode(start, ended(start.run_id, progress=nested(900)))
    limit = sys.getrecursionlimit()
    read: list[Any] = []

    def stand_deep(levels: int) -> None:
        if levels:
            stand_deep(levels - 1)
        else:
            read.append(decode(text))

    thread = threading.Thread(target=stand_deep, args=(limit - 300,))
    thread.start()
    thread.join()
    assert len(read) == 1
    assert read[0][0] == cleaned(start)
