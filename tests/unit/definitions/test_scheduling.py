"""The options of scheduled jobs, and what does not go together (B002, P10, P52, P53)."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, model_validator
from pytest_django import Settings
from typing_extensions import TypedDict

from kumiko_django import Cron, DefinitionError, Every, JobDefinition, Manual
from kumiko_django.definitions.scheduling import default_concurrency

pytestmark = pytest.mark.once


ALL: dict[str, Any] = {"trigger": Cron("@daily"), "catch_up": "all"}


def handler(payload: Any, ctx: Any) -> None: ...


def defined(**options: Any) -> JobDefinition:
    return JobDefinition(**{"handler": handler, "app_label": "shop", "tenant": "system", **options})


@pytest.mark.parametrize("trigger", [Cron("@daily"), Every(60)])
@pytest.mark.parametrize("catch_up", [None, "one", "none", "all"])
def test_catching_up_has_three_rules(trigger: Any, catch_up: Any) -> None:
    """P53: and one of them holds where none is given."""
    definition = defined(trigger=trigger, catch_up=catch_up)
    assert definition.effective_catch_up == (catch_up or "one")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trigger": Cron("@daily"), "catch_up": "some"}, "use 'one' or 'none' or 'all'"),
        ({"trigger": Cron("@daily"), "catch_up": True}, "catch_up=True is unknown"),
        ({"catch_up": "one"}, r"has no effect without trigger=Cron\(...\) or Every"),
        ({"trigger": "0 6 * * *"}, r"trigger must be Manual\(\), Cron\(pattern\), Every"),
        ({"trigger": Cron}, "trigger must be"),
        *(
            (
                {**ALL, **mode},
                f"catch_up='all' and concurrency='{mode['concurrency']}' exclude .*"
                "drops some of the occurrences.*Use 'sequential'.*or 'parallel'",
            )
            for mode in (
                {"concurrency": "skip"},
                {"concurrency": "replace"},
                {"concurrency": "debounce", "debounce": 5},
                {"concurrency": "throttle", "throttle": 5},
            )
        ),
        ({**ALL, "max_per_tenant": 2}, "catch_up='all' and max_per_tenant=2 exclude .*Drop one"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], message: str) -> None:
    """P10: by name and with the fix."""
    with pytest.raises(DefinitionError, match=message):
        defined(**options)


class Sized(BaseModel):
    size: int


class Defaulted(BaseModel):
    size: int = 3


class Named(TypedDict):
    name: str


class Particular(BaseModel):
    size: int = 3

    @model_validator(mode="after")
    def _look(self) -> Particular:
        raise LookupError("there is no database yet")


@pytest.mark.parametrize("each", [False, True], ids=["one", "per tenant"])
@pytest.mark.parametrize("trigger", [Cron("@daily"), Every(60)], ids=["Cron", "Every"])
def test_a_schema_must_take_the_empty_payload(trigger: Any, each: bool) -> None:
    """P10, P33: a clock gives none, so every occurrence would fail."""
    given = {"trigger": trigger, "per_tenant": each, "tenant": "required" if each else "system"}
    for schema in (Sized, Named):
        with pytest.raises(DefinitionError) as told:
            defined(schema=schema, **given)
        assert f"{type(trigger).__name__} starts the job with an empty payload" in str(told.value)
        assert "Field required" in str(told.value)
        assert "Give the fields defaults." in str(told.value)
    defined(schema=Defaulted, **given)
    defined(schema=Particular, **given)  # a validator's own fault, which may pass by then
    defined(schema=Sized)


@pytest.mark.parametrize("trigger", [Cron("@daily"), Every(60)])
def test_a_clock_knows_no_tenant(trigger: Any, settings: Settings) -> None:
    """user-needs 24, design 3: with tenancy on, a scheduled job says that it belongs to none."""
    with pytest.raises(DefinitionError, match="has no tenant, and this one needs"):
        defined(trigger=trigger, tenant="required")

    without = {key: value for key, value in settings.KUMIKO.items() if key != "TENANTS"}
    settings.KUMIKO = without
    assert defined(trigger=trigger, tenant="required").trigger == trigger
    settings.KUMIKO = {**without, "UNKNOWN": 1}  # told by the system checks, not here
    assert defined(trigger=trigger, tenant="required").trigger == trigger


def test_scheduled_jobs_do_not_pile_up_unless_they_say_so() -> None:
    """P52, user-needs 34: the mode of a definition that names none."""
    for trigger in (Cron("@daily"), Every(60)):
        assert [default_concurrency(trigger, rule) for rule in (None, "one", "none", "all")] == [
            "skip", "skip", "skip", "sequential",
        ]  # fmt: skip
    assert default_concurrency(Manual(), None) == "parallel"


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_all_that_was_missed_runs(mode: Any) -> None:
    """P53: the mode drops nothing, and it is one after the other unless the definition says so."""
    assert defined(**ALL).concurrency == "sequential"
    assert defined(**ALL, concurrency=mode).concurrency == mode
    # Children over the cap wait for their turn; nothing is dropped.
    each = JobDefinition(handler=handler, per_tenant=True, max_per_tenant=2, **ALL)
    assert each.concurrency == "sequential"
