"""Python values to JSON values, or the path to what has none (P33, P81, user-needs 38)."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import enum
import io
import json
import math
import pathlib
import random
import sys
import types
import uuid
import zoneinfo
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from django.contrib.auth.models import Permission, User
from django.core.files.base import ContentFile
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.http import QueryDict
from django.utils.dateparse import parse_datetime, parse_duration
from django.utils.functional import SimpleLazyObject
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy, override
from pydantic import BaseModel

from kumiko_django import PayloadError
from kumiko_django.types.jsonable import to_jsonable, to_jsonable_lossy

pytestmark = pytest.mark.once


class Colour(enum.Enum):
    RED = "red"


class Nested(enum.Enum):
    PAIR = (1, Colour.RED)


class Choice(models.TextChoices):
    YES = "yes", "Certainly"


class Level(enum.IntEnum):
    HIGH = 3


class Mixed(str, enum.Enum):  # noqa: UP042  (the kind whose text is "Mixed.A")
    A = "a"


class Point(NamedTuple):
    x: int
    y: float


class MyInt(int): ...


class MyFloat(float): ...


class MyStr(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


REFERENCE = uuid.uuid4()
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")

PLAIN: list[tuple[Any, Any]] = [
    (None, None),
    (True, True),
    (0, 0),
    (-(2**63), -(2**63)),
    (2**64, 2**64),
    (10**600, 10**600),
    (1.5, 1.5),
    (-0.0, -0.0),
    (5e-324, 5e-324),
    ("", ""),
    ("Zürich \u2603\U0001f600\x00\n", "Zürich \u2603\U0001f600\x00\n"),
    ([], []),
    ((1, [2, (3,)]), [1, [2, [3]]]),
    ({}, {}),
    ({"a": {"": None}}, {"a": {"": None}}),
    (Point(1, 2.5), [1, 2.5]),
    (collections.OrderedDict(a=1), {"a": 1}),
    (collections.Counter("aab"), {"a": 2, "b": 1}),
    (types.MappingProxyType({"a": 1}), {"a": 1}),
    (QueryDict("a=1&a=2&b=3"), {"a": "2", "b": "3"}),
    (Colour.RED, "red"),
    (Nested.PAIR, [1, "red"]),
    (Choice.YES, "yes"),
    (Level.HIGH, 3),
    (Mixed.A, "a"),
    ({Colour.RED: 1, Choice.YES: 2, Mixed.A: 3}, {"red": 1, "yes": 2, "a": 3}),
    (MyInt(5), 5),
    (MyFloat(5.5), 5.5),
    (MyStr("text"), "text"),
    (mark_safe("<b>"), "<b>"),
    ({mark_safe("key"): MyStr("text")}, {"key": "text"}),
    (gettext_lazy("job run"), "job run"),
    (decimal.Decimal("10.50"), "10.50"),
    (decimal.Decimal("-0E+5"), "-0E+5"),
    (REFERENCE, str(REFERENCE)),
    (pathlib.PurePosixPath("/srv/a b"), "/srv/a b"),
    (dt.date(2026, 2, 28), "2026-02-28"),
    (dt.time(1, 2, 3, 4), "01:02:03.000004"),
    (dt.timedelta(days=1, seconds=1, microseconds=5), "P1DT00H00M01.000005S"),
    (dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC), "2026-01-02T03:04:05.000006Z"),
    (dt.datetime(2026, 7, 1, 12, tzinfo=BERLIN), "2026-07-01T12:00:00+02:00"),
    (dt.datetime(2026, 1, 2), "2026-01-02T00:00:00"),  # noqa: DTZ001  (naive on purpose)
]


@pytest.mark.parametrize(("value", "expected"), PLAIN, ids=lambda value: repr(value)[:40])
def test_what_has_a_json_form(value: Any, expected: Any) -> None:
    converted = to_jsonable(value)

    assert converted == expected
    assert only_plain(converted)
    assert json.loads(json.dumps(converted, allow_nan=False)) == converted
    assert to_jsonable(converted) == converted, "twice is as good as once"
    assert to_jsonable_lossy(value) == expected


def only_plain(value: Any) -> bool:
    """Whether it is of JSON's own types all the way down, subclasses excluded."""
    if type(value) is dict:
        return all(type(key) is str and only_plain(item) for key, item in value.items())
    if type(value) is list:
        return all(map(only_plain, value))
    return type(value) in (str, int, float, bool, type(None))


@pytest.mark.parametrize(
    "value",
    [
        dt.date(2026, 2, 28), dt.time(1, 2, 3), dt.timedelta(days=-1, hours=3), REFERENCE,
        decimal.Decimal("1.10"), gettext_lazy("job run"), dt.datetime(2026, 7, 1, tzinfo=BERLIN),
        dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC), Colour.RED.value,
    ],
    ids=repr,
)  # fmt: skip
def test_values_are_written_as_django_writes_them(value: Any) -> None:
    """Design 5. Only microseconds are kept, of which Django cuts the last three."""
    assert json.dumps(to_jsonable(value)) == json.dumps(value, cls=DjangoJSONEncoder)


def test_a_lazy_text_is_written_in_the_language_of_the_dispatch() -> None:
    lazy = gettext_lazy("Monday")

    with override("de"):
        assert to_jsonable({"day": lazy}) == {"day": "Montag"}
    with override("en"):
        assert to_jsonable({"day": lazy}) == {"day": "Monday"}


def test_moments_and_spans_can_be_read_back_with_django() -> None:
    """Also where a job has no schema."""
    rng = random.Random(1)
    for _ in range(500):
        moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(
            days=rng.randint(0, 30_000), microseconds=rng.randint(0, 86_399_999_999)
        )
        span = dt.timedelta(rng.randint(-9999, 9999), microseconds=rng.randint(0, 86_399_999_999))
        assert parse_datetime(str(to_jsonable(moment))) == moment
        assert parse_duration(str(to_jsonable(span))) == span


# ------------------------------------------------------------------------------------- refusals


@dataclass
class Order:
    number: int


class OrderModel(BaseModel):
    number: int


REFUSED: dict[str, tuple[Any, str]] = {
    "model instance": (User(username="a"), "models.User, .*Send its primary key and load the row"),
    "unsaved model": (Permission(), "Send its primary key"),
    "lazy user": (SimpleLazyObject(lambda: User(username="a")), "Send its primary key"),
    "queryset": (User.objects.none(), r"QuerySet, .*values_list\('pk', flat=True\)"),
    "file": (io.BytesIO(b"a"), "BytesIO, .*Store the file and send its name"),
    "django file": (ContentFile(b"a"), "ContentFile, .*Store the file and send its name"),
    "lambda": (lambda: None, "builtins.function, .*Send its name"),
    "class": (Order, "builtins.type, .*cannot travel as JSON"),
    "set": ({1}, "builtins.set, .*Send a sorted list"),
    "frozenset": (frozenset({1}), "Send a sorted list"),
    "bytes": (b"a", "builtins.bytes, .*Store the bytes in a file"),
    "bytearray": (bytearray(b"a"), "Store the bytes in a file"),
    "memoryview": (memoryview(b"a"), "Store the bytes in a file"),
    "generator": ((n for n in range(3)), "builtins.generator, .*Send plain values"),
    "range": (range(3), "builtins.range, "),
    "dict view": ({}.keys(), "dict_keys"),
    "dataclass": (Order(1), r"Order, .*Give the job a schema=, or send a dict"),
    "pydantic model": (OrderModel(number=1), r"OrderModel, .*Give the job a schema="),
    "complex": (1j, "builtins.complex"),
    "object": (object(), "builtins.object, which cannot travel as JSON"),
    "exception": (ValueError("a"), "builtins.ValueError"),
    "NaN": (math.nan, "is nan, which JSON does not have"),
    "Infinity": (math.inf, "is inf, which JSON does not have"),
    "-Infinity": (-math.inf, "is -inf, which JSON does not have"),
    "NaN of a subclass": (MyFloat("nan"), "which JSON does not have"),
    "Decimal NaN": (decimal.Decimal("NaN"), r"is Decimal\('NaN'\), which JSON does not have"),
    "Decimal sNaN": (decimal.Decimal("sNaN"), "which JSON does not have"),
    "Decimal Infinity": (decimal.Decimal("-Infinity"), "which JSON does not have"),
    "time with zone": (dt.time(1, tzinfo=dt.UTC), "is a time with a time zone"),
    "huge integer": (10**5000, "is a whole number too long to be written"),
    "huge negative": (-(10**700), "is a whole number too long to be written"),
    "enum of an object": (enum.Enum("E", {"A": object()}).A, "builtins.object"),  # type: ignore[attr-defined]
}


@pytest.mark.parametrize(("value", "message"), REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize(
    ("wrap", "path"),
    [
        (lambda value: value, "payload"),
        (lambda value: {"a": value}, "payload.a"),
        (lambda value: {"a": [1, {"b c": (0, value)}]}, "payload.a[1].b c[1]"),
    ],
    ids=["itself", "in a dict", "deep"],
)
def test_everything_else_is_refused_with_its_path(
    value: Any, message: str, wrap: Any, path: str
) -> None:
    """P33, user-needs 38."""
    with pytest.raises(PayloadError, match=message) as caught:
        to_jsonable(wrap(value))

    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path} ")


@pytest.mark.parametrize("key", [1, 1.5, None, True, (1, 2), b"a", dt.date(2026, 1, 1), Level.HIGH])
def test_keys_must_be_text(key: Any) -> None:
    """JSON turns numbers into texts without a word, and 1 and "1" into one key."""
    with pytest.raises(PayloadError, match="keys must be text, since JSON would turn") as caught:
        to_jsonable({"rows": [{key: 1}]})

    assert caught.value.path == "payload.rows[0]"


def test_keys_that_would_become_one_are_refused() -> None:
    with pytest.raises(PayloadError, match="two keys that are both written 'red'"):
        to_jsonable({Colour.RED: 1, "red": 2})


def test_a_long_key_is_cut_in_the_path() -> None:
    with pytest.raises(PayloadError) as caught:
        to_jsonable({"k" * 10_000: object()})

    assert len(str(caught.value)) < 300


def test_another_root_may_be_named() -> None:
    with pytest.raises(PayloadError, match=r"^result\.a\[0\] is a ") as caught:
        to_jsonable({"a": [object()]}, "result")

    assert caught.value.path == "result.a[0]"


# -------------------------------------------------------------------------- depth and circles


def nested(depth: int, kind: str) -> Any:
    value: Any = "end"
    for _ in range(depth):
        value = [value] if kind == "list" else {"a": value}
    return value


@pytest.mark.parametrize("kind", ["list", "dict"])
def test_the_depth_is_bounded(kind: str) -> None:
    value = nested(64, kind)
    assert to_jsonable(value) == value

    for depth in (65, 500, sys.getrecursionlimit() * 20):
        with pytest.raises(PayloadError, match="nested more than 64 levels deep") as caught:
            to_jsonable(nested(depth, kind))
        assert caught.value.path == "payload" + ("[0]" if kind == "list" else ".a") * 64


def circles() -> dict[str, Any]:
    in_list: list[Any] = [1]
    in_list.append(in_list)
    in_dict: dict[str, Any] = {"a": 1}
    in_dict["self"] = in_dict
    mutual: dict[str, Any] = {"list": []}
    mutual["list"] += [mutual, mutual]
    twice: list[Any] = []
    twice += [twice, twice, twice]
    return {"list": in_list, "dict": in_dict, "mutual": mutual, "three times": twice}


@pytest.mark.parametrize("value", circles().values(), ids=circles().keys())
def test_what_contains_itself_is_refused_at_once(value: Any) -> None:
    """Not after 3 to the power of 64 steps."""
    with pytest.raises(PayloadError, match="or contains itself"):
        to_jsonable(value)
    assert isinstance(to_jsonable_lossy(value), str)


# ---------------------------------------------------------------------------------------- lossy


class Broken:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class BrokenMapping(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("no items")


def test_the_lossy_form_keeps_what_it_can() -> None:
    """P81: a line of a run's log never fails for what is logged."""
    lossy = to_jsonable_lossy(
        {
            "kept": [1, "two", dt.date(2026, 1, 1)],
            "set": {1},
            "nan": math.nan,
            "decimal": decimal.Decimal("NaN"),
            "time": dt.time(1, tzinfo=dt.UTC),
            "huge": 10**700,
            "object": Order(1),
            "broken": Broken(),
            1: "number",
            None: "none",
        }
    )

    assert lossy == {
        "kept": [1, "two", "2026-01-01"],
        "set": "{1}",
        "nan": "nan",
        "decimal": "NaN",
        "time": "01:00:00+00:00",
        "huge": str(10**700),
        "object": str(Order(1)),
        "broken": "<Broken>",
        "1": "number",
        "None": "none",
    }


@pytest.mark.parametrize(
    "value",
    [
        Broken(),
        [Broken()],
        {"a": Broken()},
        BrokenMapping(a=1),
        nested(100, "dict"),
        10**5000,
        b"\xff",
    ],
    ids=["broken", "in list", "in dict", "mapping", "deep", "huge", "bytes"],
)
def test_the_lossy_form_never_fails(value: Any) -> None:
    assert only_plain(to_jsonable_lossy(value))


def test_a_mapping_that_breaks_is_the_callers_own_error() -> None:
    with pytest.raises(RuntimeError, match="no items"):
        to_jsonable(BrokenMapping(a=1))
