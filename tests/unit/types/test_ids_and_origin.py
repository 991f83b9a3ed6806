"""Ids, the write origin on the wire, and the result of a dispatch (B133, B170-B172, P09)."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import time
import uuid
from typing import Any

import pytest

from kumiko_django import SYSTEM, Dispatched
from kumiko_django.types.arguments import AMBIENT
from kumiko_django.types.ids import new_job_id, uuid7
from kumiko_django.types.origin import MalformedOrigin, WriteOrigin

pytestmark = pytest.mark.once


def test_system_is_the_id_that_rows_and_wire_have() -> None:
    assert SYSTEM == "00000000-0000-4000-8000-000000000000"
    assert str(uuid.UUID(SYSTEM)) == SYSTEM


def test_a_job_id_is_a_uuid_of_version_7() -> None:
    before = time.time_ns() // 1_000_000
    made = uuid7()
    after = time.time_ns() // 1_000_000

    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert before <= made.int >> 80 <= after


def test_job_ids_are_texts_that_no_queue_takes_for_its_own() -> None:
    """``bullmq-python`` 1.15: integers collide with the queue's counter, colons with its keys."""
    ids = {new_job_id() for _ in range(10_000)}

    assert len(ids) == 10_000
    assert all(len(job_id) == 36 and "-" in job_id and ":" not in job_id for job_id in ids)


def test_ids_sort_by_the_time_they_were_made() -> None:
    """The history inserts at the end of its index."""
    first = uuid7()
    while time.time_ns() // 1_000_000 <= first.int >> 80:
        pass
    second = uuid7()

    assert str(first) < str(second)


def test_ids_of_one_millisecond_sort_by_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 9562, 6.2: runs that begin in the same millisecond stand in the admin as they began."""
    began = 1_790_000_000_000_000_000
    moments = [began + 250 * step for step in range(4000)]  # a millisecond
    clock = iter(moments)
    monkeypatch.setattr(time, "time_ns", lambda: next(clock))
    ids = [uuid7() for _ in moments]
    monkeypatch.undo()

    assert [str(made) for made in ids] == sorted(str(made) for made in ids)
    assert {made.int >> 80 for made in ids} == {began // 1_000_000}
    assert {made.version for made in ids} == {7}
    assert {made.variant for made in ids} == {uuid.RFC_4122}


ORIGINS = [
    (WriteOrigin("anonymous"), {"root": "anonymous"}),
    (WriteOrigin("user"), {"root": "user"}),
    (WriteOrigin("system", "shop:job:send"), {"root": "system", "viaJob": "shop:job:send"}),
]


@pytest.mark.parametrize(("origin", "wire"), ORIGINS)
def test_an_origin_travels_there_and_back(origin: WriteOrigin, wire: dict[str, str]) -> None:
    assert origin.to_wire() == wire
    assert WriteOrigin.from_wire(wire) == origin
    assert WriteOrigin.from_wire({**wire, "more": 1}) == origin


def test_only_anonymous_work_is_gated_and_a_job_adds_its_name() -> None:
    """B170: and its root stays the root, through any number of jobs."""
    assert [origin.is_gated for origin, _ in ORIGINS] == [True, False, False]
    chained = WriteOrigin("anonymous").via("a:job:b").via("a:job:c")
    assert chained == WriteOrigin("anonymous", "a:job:c")
    assert chained.is_gated


@pytest.mark.parametrize(
    "value",
    [
        None, "anonymous", [], 5, True, {}, {"root": None}, {"root": "nobody"}, {"root": ["user"]},
        {"root": {"user": 1}}, {"root": "user", "viaJob": 5}, {"root": "user", "viaJob": ["a"]},
        {"viaJob": "a"}, {"root": "User"}, {"root": True},
    ],
    ids=str,
)  # fmt: skip
def test_an_origin_that_cannot_be_read_is_refused(value: Any) -> None:
    """B133: nothing is guessed, since it may bar personal data."""
    with pytest.raises(MalformedOrigin):
        WriteOrigin.from_wire(value)


def test_a_dispatched_is_a_value_and_true() -> None:
    """P09: a result of its own, not an id that may be the text "skipped"."""
    dispatched = Dispatched("queued", "1")

    assert dispatched
    assert dispatched == Dispatched("queued", "1", None)
    assert copy.copy(dispatched) == dispatched
    assert pickle.loads(pickle.dumps(dispatched)) == dispatched  # noqa: S301  (our own)
    with pytest.raises(dataclasses.FrozenInstanceError):
        dispatched.job_id = "2"  # type: ignore[misc]


def test_the_marker_of_the_ambient_tenant_keeps_its_look() -> None:
    """It stands in signatures, and so in the documentation."""
    assert repr(AMBIENT) == "AMBIENT"
    assert not isinstance(AMBIENT, str | int | uuid.UUID)
