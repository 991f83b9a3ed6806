"""What goes through a schema comes back typed and equal (user-needs 38, P33)."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import json
import random
import uuid
import zoneinfo
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy
from pydantic import BaseModel, Field, Json, PlainSerializer
from typing_extensions import TypedDict

from kumiko_django import PayloadError
from kumiko_django.definitions.schema import PayloadSchema
from kumiko_django.types.jsonable import to_jsonable

pytestmark = pytest.mark.once

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")


class Colour(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    BIG = 3


class Mood(enum.StrEnum):
    GLAD = "glad"


class Inner(BaseModel):
    at: dt.datetime
    amounts: list[decimal.Decimal]


class Everything(BaseModel):
    moment: dt.datetime
    day: dt.date
    time: dt.time
    span: dt.timedelta
    amount: decimal.Decimal
    reference: uuid.UUID
    colour: Colour
    size: Size
    mood: Mood
    path: Path
    text: str
    number: int
    ratio: float
    flag: bool
    nothing: None
    inner: Inner
    table: dict[str, Inner]
    pairs: tuple[int, str]
    several: set[int]
    either: int | str
    kind: Literal["a", "b"]
    by_number: dict[int, str]


MOMENT = dt.datetime(2026, 3, 29, 2, 30, 15, 123_456, tzinfo=dt.UTC)
VALUES: dict[str, Any] = {
    "moment": MOMENT,
    "day": dt.date(2026, 2, 28),
    "time": dt.time(23, 59, 59, 999_999),
    "span": dt.timedelta(days=-1, microseconds=1),
    "amount": decimal.Decimal("12345678901234567890.10"),
    "reference": uuid.uuid4(),
    "colour": Colour.RED,
    "size": Size.BIG,
    "mood": Mood.GLAD,
    "path": Path("/srv/imports/größe.csv"),
    "text": "Zürich \u2603 \U0001f600",
    "number": 2**70,
    "ratio": 0.1 + 0.2,
    "flag": True,
    "nothing": None,
    "inner": Inner(at=MOMENT, amounts=[decimal.Decimal("0.10")]),
    "table": {"a": Inner(at=MOMENT, amounts=[])},
    "pairs": (1, "one"),
    "several": {1, 2, 3},
    "either": "5",
    "kind": "b",
    "by_number": {1: "one"},
}


def through_redis(schema: PayloadSchema, payload: Any) -> Any:
    """What dispatch does, what the queue does, what the run does."""
    travelling = json.dumps(to_jsonable(schema.dump(payload)))
    return schema.load(json.loads(travelling))


def test_everything_comes_back_equal_and_typed() -> None:
    """User-needs 38's list, through a model."""
    sent = Everything(**VALUES)
    arrived = through_redis(PayloadSchema(Everything, "here"), sent)

    assert arrived == sent
    for name, value in VALUES.items():
        assert type(getattr(arrived, name)) is type(value), name
    assert str(arrived.amount) == "12345678901234567890.10"


def test_a_mapping_comes_back_as_the_model() -> None:
    arrived = through_redis(PayloadSchema(Everything, "here"), VALUES)

    assert arrived == Everything(**VALUES)


@dataclass(frozen=True)
class Point:
    at: dt.datetime
    reference: uuid.UUID


class Row(TypedDict):
    at: dt.datetime
    amount: decimal.Decimal


def test_dataclasses_and_typed_dicts_come_back_too() -> None:
    point = Point(MOMENT, uuid.uuid4())
    row: Row = {"at": MOMENT, "amount": decimal.Decimal("1.50")}

    assert through_redis(PayloadSchema(Point, "here"), point) == point
    assert through_redis(PayloadSchema(Row, "here"), row) == row


@pytest.mark.parametrize("text", [gettext_lazy("job run"), mark_safe("<b>bold</b>")])
def test_lazy_and_safe_texts_travel_without_a_schema_as_plain_text(text: Any) -> None:
    arrived = to_jsonable({"text": text})

    assert arrived == {"text": str(text)}
    assert isinstance(arrived, dict)
    assert type(arrived["text"]) is str


class Texts(BaseModel):
    title: str
    lines: list[str]
    by_name: dict[str, str] = {}


def test_lazy_and_safe_texts_travel_through_a_schema() -> None:
    """User-needs 38; pydantic alone does not take a lazy text for a text."""
    lazy, safe = gettext_lazy("job run"), mark_safe("<b>bold</b>")
    arrived = through_redis(
        PayloadSchema(Texts, "here"),
        {"title": lazy, "lines": ["a", lazy, safe], "by_name": {"a": lazy}},
    )

    assert arrived == Texts(
        title="job run", lines=["a", "job run", "<b>bold</b>"], by_name={"a": "job run"}
    )


def test_a_lazy_text_where_a_number_belongs_is_refused_with_its_path() -> None:
    with pytest.raises(PayloadError, match=r"payload\.number: Input should be a valid integer"):
        PayloadSchema(Numbered, "here").dump({"number": gettext_lazy("job run")})


class Numbered(BaseModel):
    number: int


@pytest.mark.parametrize(
    "moment",
    [
        dt.datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN),
        dt.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN),
        dt.datetime(2026, 3, 29, 2, 30, tzinfo=BERLIN),
        dt.datetime(1900, 1, 1, 12, 0, 0, 1, tzinfo=dt.UTC),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC),
        dt.datetime(2026, 1, 1, 0, 0, tzinfo=dt.timezone(dt.timedelta(hours=-9, minutes=-30))),
        dt.datetime(2026, 1, 1, 0, 0, 0, 1),  # noqa: DTZ001  (naive on purpose)
    ],
    ids=str,
)
def test_moments_keep_their_instant(moment: dt.datetime) -> None:
    schema = PayloadSchema(Point, "here")
    arrived = through_redis(schema, {"at": moment, "reference": uuid.uuid4()})

    assert arrived.at == moment or arrived.at.timestamp() == moment.timestamp()
    assert arrived.at.utcoffset() == moment.utcoffset()


def test_thousands_of_values_made_at_random_come_back_equal() -> None:
    """Microseconds are where conversions lose something."""
    rng = random.Random(20261129)
    schema = PayloadSchema(Spans, "here")
    for _ in range(2000):
        sent = Spans(
            at=dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
            + dt.timedelta(
                days=rng.randint(0, 30_000), microseconds=rng.randint(0, 86_399_999_999)
            ),
            span=dt.timedelta(
                days=rng.randint(-10_000, 10_000), microseconds=rng.randint(0, 86_399_999_999)
            ),
            amount=decimal.Decimal(rng.randint(-(10**20), 10**20)).scaleb(-rng.randint(0, 12)),
            ratio=rng.uniform(-1e12, 1e12),
        )
        assert through_redis(schema, sent) == sent


class Spans(BaseModel):
    at: dt.datetime
    span: dt.timedelta
    amount: decimal.Decimal
    ratio: float


class Parsed(BaseModel):
    rows: Json[list[int]]


def test_a_json_field_is_parsed_at_both_ends() -> None:
    assert through_redis(PayloadSchema(Parsed, "here"), {"rows": "[1, 2]"}).rows == [1, 2]


class Recursive(BaseModel):
    name: str
    children: list[Recursive] = Field(default_factory=list)


def test_nested_models_come_back() -> None:
    tree = Recursive(name="a", children=[Recursive(name="b", children=[Recursive(name="c")])])

    assert through_redis(PayloadSchema(Recursive, "here"), tree) == tree


def test_a_model_that_contains_itself_is_refused() -> None:
    tree = Recursive(name="a")
    tree.children.append(tree)

    with pytest.raises(PayloadError):
        PayloadSchema(Recursive, "here").dump(tree)


class Coarse(BaseModel):
    count: Annotated[int, PlainSerializer(lambda value: f"about {value}")]


def test_a_serializer_that_the_schema_cannot_read_is_told_at_dispatch() -> None:
    with pytest.raises(PayloadError, match=r"cannot read what it writes.*payload.count"):
        PayloadSchema(Coarse, "here").dump({"count": 5})
