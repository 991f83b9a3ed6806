"""Schemas: what may be one, and what they refuse (P71, P10)."""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass
from typing import Any, NamedTuple

import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr, computed_field, field_validator
from typing_extensions import TypedDict

from kumiko_django import DefinitionError, JobDefinition, PayloadError
from kumiko_django.definitions.schema import PayloadSchema

pytestmark = pytest.mark.once


class Model(BaseModel):
    count: int
    note: str = "none"


@dataclass
class Plain:
    count: int
    note: str = "none"


@pydantic.dataclasses.dataclass
class PydanticDataclass:
    count: int
    note: str = "none"


class Typed(TypedDict):
    count: int
    note: str


class Colour(enum.Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int


def schema_of(schema: Any) -> PayloadSchema:
    return PayloadSchema(schema, "job shop.jobs.send")


@pytest.mark.parametrize("schema", [Model, Plain, PydanticDataclass, Typed])
def test_a_payload_is_checked_at_both_ends(schema: Any) -> None:
    """P71: the handler is given what the schema says."""
    compiled = schema_of(schema)
    dumped = compiled.dump({"count": "3", "note": "x"})

    assert dumped == {"count": 3, "note": "x"}
    loaded = compiled.load(dumped)
    if schema is Typed:
        assert loaded == {"count": 3, "note": "x"}
    else:
        assert isinstance(loaded, schema)
        assert (loaded.count, loaded.note) == (3, "x")


@pytest.mark.parametrize("value", [Model(count=3), {"count": 3}])
def test_a_model_may_be_given_as_itself_or_as_a_mapping(value: Any) -> None:
    assert schema_of(Model).dump(value) == {"count": 3, "note": "none"}


@pytest.mark.parametrize(
    "schema",
    [
        int, str, list, dict, object, list[int], dict[str, int], Model | None,
        Model(count=1), Colour, Point, type("Bare", (), {}), "Model", lambda payload: payload,
        BaseModel.model_validate, pydantic.RootModel[list[int]], pydantic.RootModel[dict[str, int]],
        pydantic.TypeAdapter(Model), 5,
    ],
    ids=str,
)  # fmt: skip
def test_what_has_no_named_fields_is_no_schema(schema: Any) -> None:
    """P10: refused when the job is defined, not when it is dispatched."""
    with pytest.raises(
        DefinitionError,
        match=r"^job shop\.jobs\.send: schema must be a pydantic model, a dataclass or a TypedDict",
    ):
        schema_of(schema)


class Opaque:
    pass


def test_a_schema_that_cannot_be_validated_is_refused() -> None:
    unusable = dataclasses.make_dataclass("Unusable", [("thing", Opaque)])

    with pytest.raises(DefinitionError, match="schema=Unusable cannot be turned into a validator"):
        schema_of(unusable)


def test_a_definition_names_itself_when_its_schema_is_wrong() -> None:
    def send(payload: Any, ctx: Any) -> None: ...

    with pytest.raises(DefinitionError, match=rf"^job {__name__}\..*send: schema must be"):
        JobDefinition(handler=send, schema=int)


class Ahead(BaseModel):
    """Its annotation names what is defined further down in the module."""

    item: Behind


@dataclass
class AheadPlain:
    item: Behind


ahead, ahead_plain = schema_of(Ahead), schema_of(AheadPlain)


class Behind(BaseModel):
    count: int


@pytest.mark.parametrize("compiled", [ahead, ahead_plain], ids=["model", "dataclass"])
def test_a_schema_may_name_what_is_defined_later(compiled: PayloadSchema) -> None:
    compiled.complete()

    assert compiled.dump({"item": {"count": 1}}) == {"item": {"count": 1}}
    assert compiled.load({"item": {"count": 1}}).item == Behind(count=1)


class Nowhere(BaseModel):
    item: NoSuchThing  # type: ignore[name-defined]  # noqa: F821


@dataclass
class NowherePlain:
    item: NoSuchThing  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize("schema", [Nowhere, NowherePlain])
def test_a_name_that_stays_undefined_is_told(schema: Any) -> None:
    compiled = schema_of(schema)

    for use in (compiled.complete, lambda: compiled.dump({}), lambda: compiled.load({})):
        with pytest.raises(
            DefinitionError, match=f"{schema.__name__} has an annotation that names"
        ):
            use()


class Item(BaseModel):
    price: int


class Order(BaseModel):
    items: list[Item]
    by_name: dict[str, Item] = {}


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        ({}, "payload.items"),
        ({"items": 5}, "payload.items"),
        ({"items": [{"price": 1}, {"price": "x"}]}, "payload.items[1].price"),
        ({"items": [], "by_name": {"a": {}}}, "payload.by_name.a.price"),
        (None, "payload"),
        ([1], "payload"),
        ("text", "payload"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_path(payload: Any, path: str) -> None:
    """P33, P71."""
    with pytest.raises(PayloadError, match="does not fit its schema") as caught:
        schema_of(Order).dump(payload)

    assert caught.value.path == path
    assert path in str(caught.value)


def test_five_faults_are_shown_and_the_others_counted() -> None:
    faulty = {"items": [{"price": "x"}] * 8}

    with pytest.raises(PayloadError, match=r"items\[4\]\.price: .* \(and 3 more\)\.$") as caught:
        schema_of(Order).dump(faulty)

    assert "items[5]" not in str(caught.value)


def test_messages_do_not_show_the_values() -> None:
    """They end up in logs, and a value may be personal data."""
    with pytest.raises(PayloadError) as caught:
        schema_of(Model).dump({"count": "grandmother's maiden name"})

    assert "grandmother" not in str(caught.value)


def test_a_payload_that_no_longer_fits_is_refused_when_it_arrives() -> None:
    """P71: the schema has changed since the dispatch."""
    with pytest.raises(PayloadError, match=r"payload.count: Field required") as caught:
        schema_of(Model).load({"note": "x"})

    assert caught.value.path == "payload.count"


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    count: int
    colour: Colour = Colour.RED


def test_a_strict_model_takes_json_when_it_arrives() -> None:
    """In Python it wants the enumeration itself; on the wire there are only texts."""
    compiled = schema_of(Strict)

    with pytest.raises(PayloadError, match=r"payload\.count"):
        compiled.dump({"count": "1"})
    with pytest.raises(PayloadError, match=r"payload\.extra: Extra inputs are not permitted"):
        compiled.dump({"count": 1, "extra": 2})
    assert compiled.load(compiled.dump({"count": 1})) == Strict(count=1, colour=Colour.RED)


class Counted(BaseModel):
    model_config = ConfigDict(extra="forbid")
    count: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return 2 * self.count


def test_computed_fields_do_not_travel() -> None:
    """With ``extra="forbid"`` every job of the kind was refused by the worker."""
    compiled = schema_of(Counted)

    assert compiled.dump({"count": 2}) == {"count": 2}
    assert compiled.load({"count": 2}) == Counted(count=2)


class Aliased(BaseModel):
    model_config = ConfigDict(alias_generator=lambda name: name.upper(), populate_by_name=True)
    count: int


def test_aliases_are_what_travels() -> None:
    compiled = schema_of(Aliased)

    for payload in ({"COUNT": 1}, {"count": 1}, Aliased(count=1)):
        assert compiled.dump(payload) == {"COUNT": 1}
    assert compiled.load({"COUNT": 1}) == Aliased(count=1)


class OneWay(BaseModel):
    count: int = Field(serialization_alias="number")


class Hidden(BaseModel):
    count: int = Field(exclude=True)


@pytest.mark.parametrize("schema", [OneWay, Hidden])
def test_a_schema_that_cannot_read_what_it_writes_is_told_at_dispatch(schema: Any) -> None:
    """And not by the worker, for every job."""
    with pytest.raises(PayloadError, match=r"cannot read what it writes.*payload.count"):
        schema_of(schema).dump({"count": 1})


class WithSecret(BaseModel):
    inner: dict[str, SecretStr]


def test_a_secret_is_refused_since_only_stars_would_arrive() -> None:
    with pytest.raises(PayloadError, match=r"payload\.inner\.a is a secret") as caught:
        schema_of(WithSecret).dump({"inner": {"a": "hunter2"}})

    assert caught.value.path == "payload.inner.a"
    assert "hunter2" not in str(caught.value)


class Loose(BaseModel):
    x: Any
    maybe: float | None = None


LOOP: list[Any] = []
LOOP.append(LOOP)
DEEP: list[Any] = []
for _ in range(5000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("payload", "message", "path"),
    [
        ({"x": float("nan")}, "is nan, which JSON does not have", "payload.x"),
        ({"x": [1, float("inf")]}, "is inf, which JSON does not have", "payload.x[1]"),
        ({"x": 1, "maybe": float("nan")}, "is nan", "payload.maybe"),
        ({"x": b"\xff"}, "is a builtins.bytes", "payload.x"),
        ({"x": [object()]}, "is a builtins.object", "payload.x[0]"),
        ({"x": lambda: None}, "is a builtins.function", "payload.x"),
        ({"x": LOOP}, "or contains itself", None),
        ({"x": DEEP}, "nested more than 64 levels", None),
    ],
)
def test_what_a_loose_schema_lets_pass_is_refused_all_the_same(
    payload: Any, message: str, path: str | None
) -> None:
    """P33: pydantic writes NaN as null, without a word."""
    with pytest.raises(PayloadError, match=message) as caught:
        schema_of(Loose).dump(payload)

    assert path in (None, caught.value.path)


class Undecodable(BaseModel):
    blob: bytes


def test_bytes_travel_when_they_are_text() -> None:
    compiled = schema_of(Undecodable)

    assert compiled.load(compiled.dump({"blob": b"abc"})).blob == b"abc"
    with pytest.raises(PayloadError, match=r"payload\.blob is a builtins\.bytes"):
        compiled.dump({"blob": b"\xff"})


class Breaking(BaseModel):
    count: int

    @field_validator("count")
    @classmethod
    def _check(cls, value: int) -> int:
        raise KeyError("no such rate")


def test_a_validator_that_breaks_is_the_callers_when_dispatching_and_a_refusal_later() -> None:
    """In a worker it must not look like a fault of the worker's own."""
    compiled = schema_of(Breaking)

    with pytest.raises(KeyError, match="no such rate"):
        compiled.dump({"count": 1})
    with pytest.raises(PayloadError, match="schema Breaking failed on the payload: KeyError"):
        compiled.load({"count": 1})
