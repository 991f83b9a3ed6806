"""``tenant_visible_failure`` and ``tenant_visible_run``: what is refused, with the fix."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field
from pytest_django import Settings
from typing_extensions import TypedDict

from kumiko_django import (
    Cron,
    DefinitionError,
    JobContext,
    JobDefinition,
    Unrecoverable,
    VisibleFailure,
    VisibleRun,
)
from kumiko_django.definitions.summary import summary

pytestmark = pytest.mark.once


class Model(BaseModel):
    invoice_id: int
    kind: str = Field(default="late", alias="reminderKind")


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    invoice_id: int


@dataclasses.dataclass
class Data:
    invoice_id: int = 3


class Typed(TypedDict):
    invoice_id: int


def handler(payload: Any, ctx: JobContext) -> None: ...


def define(**options: Any) -> JobDefinition:
    return JobDefinition(**{"handler": handler, "app_label": "shop", **options})


def test_fields_are_kept_as_a_tuple() -> None:
    """B013, design 3, "Names, exactly": two options, each by itself."""
    assert (define().tenant_visible_failure, define().tenant_visible_run) == (None, None)
    failure = VisibleFailure("billing.reminder_failed", subject=["invoice_id"])
    assert failure.subject == ("invoice_id",)
    assert failure == VisibleFailure("billing.reminder_failed", ("invoice_id",))
    assert VisibleRun().subject == ()
    definition = define(tenant_visible_failure=failure, tenant_visible_run=VisibleRun(("a",)))
    assert summary(definition).options == {
        "tenant_visible_failure": {
            "message_key": "billing.reminder_failed", "subject": ["invoice_id"],
        },
        "tenant_visible_run": {"subject": ["a"]},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("subject", "complaint"),
    [
        ("invoice_id", r"tuple of fields; write \('invoice_id',\)"),
        (7, "tuple of fields, not 7"),
        ((7,), "7 is none"),
        (("",), "'' is none"),
        (("0",), "'0' is none"),
        (("_tenantId",), "'_tenantId' is none"),
        (("a", "b", "a"), "has 'a' twice"),
    ],
)
def test_wrong_subjects(subject: Any, complaint: str) -> None:
    with pytest.raises(DefinitionError, match=f"VisibleRun: .*{complaint}"):
        VisibleRun(subject)
    with pytest.raises(DefinitionError, match=f"VisibleFailure: .*{complaint}"):
        VisibleFailure("a.b", subject)


@pytest.mark.parametrize("key", ["", "It did not work", None, 7, "a" * 201])
def test_wrong_keys_of_messages(key: Any) -> None:
    """B184: a key is declared, no text."""
    with pytest.raises(DefinitionError, match="VisibleFailure: message_key must be letters"):
        VisibleFailure(key)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"tenant_visible_run": VisibleRun}, r"tenant_visible_run must be VisibleRun\(subject="),
        ({"tenant_visible_run": True}, r"tenant_visible_run must be VisibleRun\(subject="),
        ({"tenant_visible_failure": "a.b"}, r"failure must be VisibleFailure\('billing"),
        ({"tenant_visible_failure": VisibleRun()}, r"failure must be VisibleFailure\('billing"),
    ],
)
def test_wrong_values(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DefinitionError, match=complaint):
        define(**options)


def test_a_job_of_the_system_has_no_tenant_to_see_it() -> None:
    with pytest.raises(DefinitionError, match="tenant_visible_run shows something to a tenant"):
        define(tenant="system", tenant_visible_run=VisibleRun())
    with pytest.raises(DefinitionError, match="tenant_visible_failure shows something"):
        define(tenant="system", tenant_visible_failure=VisibleFailure("a.b"))


@pytest.mark.parametrize("schema", [Model, Data], ids=["pydantic", "dataclass"])
def test_fields_that_the_schema_does_not_have(schema: Any) -> None:
    """Every run would fail for it."""
    define(schema=schema, tenant_visible_run=VisibleRun(("invoice_id",)))
    with pytest.raises(DefinitionError, match=r"names 'invoice', which.*They have: invoice_id"):
        define(schema=schema, tenant_visible_run=VisibleRun(("invoice",)))


def test_fields_are_those_of_the_payload_as_it_travels() -> None:
    define(schema=Model, tenant_visible_run=VisibleRun(("reminderKind",)))
    with pytest.raises(DefinitionError, match="names 'kind'"):
        define(schema=Model, tenant_visible_run=VisibleRun(("kind",)))


@pytest.mark.parametrize("schema", [Open, Typed, None])
def test_where_any_field_may_come_none_is_refused(schema: Any) -> None:
    define(schema=schema, tenant_visible_run=VisibleRun(("anything",)))


@pytest.mark.parametrize(
    "options", [{"trigger": Cron("0 6 * * *"), "per_tenant": True}, {"run_on_boot": True}]
)
def test_a_clock_gives_no_fields(options: dict[str, Any], settings: Settings) -> None:
    settings.KUMIKO = {key: v for key, v in settings.KUMIKO.items() if key != "TENANTS"}
    seen = VisibleRun(("invoice_id",))
    define(tenant_visible_run=VisibleRun(), **options)
    define(tenant_visible_run=seen, schema=Data, **options)
    with pytest.raises(DefinitionError, match="names 'invoice_id', but a clock or a boot"):
        define(tenant_visible_run=seen, **options)


def test_an_error_has_a_key_of_its_own() -> None:
    """B184: by its class, or by what it is given."""

    class CardDeclined(Unrecoverable):
        message_key = "billing.card_declined"

    assert CardDeclined("4711").message_key == "billing.card_declined"
    assert CardDeclined("4711", message_key="a.b").message_key == "a.b"
    assert str(Unrecoverable("4711", message_key="a.b")) == "4711"
    assert Unrecoverable("4711").message_key == ""
