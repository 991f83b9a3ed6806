"""``run_on_boot`` and ``boot_gate``: what is refused when a job is defined, with the fix."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from pytest_django import Settings

from kumiko_django import DefinitionError, JobContext, JobDefinition

pytestmark = pytest.mark.once


class Sized(BaseModel):
    size: int


class Defaulted(BaseModel):
    size: int = 3


def handler(payload: Any, ctx: JobContext) -> None: ...


def define(**options: Any) -> JobDefinition:
    given = {"handler": handler, "app_label": "shop", "tenant": "system", **options}
    return JobDefinition(**given)


@pytest.fixture(autouse=True)
def _tenancy(settings: Settings) -> None:
    settings.KUMIKO = {**settings.KUMIKO, "TENANTS": lambda: ["acme"]}


@pytest.mark.parametrize("gate", [True, False, "one-at-a-time"])
@pytest.mark.parametrize("boots", [True, False])
def test_both_may_be_given_with_any_trigger(gate: Any, boots: bool) -> None:
    """B226: each is wired by itself, and a dispatch still works as ever."""
    definition = define(run_on_boot=boots, boot_gate=gate, retries=2)
    assert (definition.run_on_boot, definition.boot_gate) == (boots, gate)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"run_on_boot": "yes"}, "run_on_boot must be True or False, not 'yes'"),
        ({"run_on_boot": 1}, "run_on_boot must be True or False, not 1"),
        ({"boot_gate": "once"}, "boot_gate must be True, False or 'one-at-a-time', not 'once'"),
        ({"boot_gate": 1}, "boot_gate must be True, False or 'one-at-a-time', not 1"),
        ({"boot_gate": None}, "boot_gate must be True, False or 'one-at-a-time', not None"),
    ],
)
def test_wrong_values(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DefinitionError, match=complaint):
        define(**options)


@pytest.mark.parametrize("option", ["run_on_boot", "boot_gate"])
def test_with_tenancy_on_they_belong_to_the_system(option: str, settings: Settings) -> None:
    """Design 3: nobody is there to say for which tenant."""
    with pytest.raises(DefinitionError, match=rf"{option} starts has no tenant.*system"):
        define(tenant="required", **{option: True})
    settings.KUMIKO = {key: v for key, v in settings.KUMIKO.items() if key != "TENANTS"}
    define(tenant="required", **{option: True})


@pytest.mark.parametrize("option", ["run_on_boot", "boot_gate"])
def test_a_schema_must_take_the_empty_payload(option: str) -> None:
    """B107, B108: there is nobody to give one."""
    with pytest.raises(DefinitionError, match=rf"{option} starts the job with an empty.*size"):
        define(schema=Sized, **{option: True})
    define(schema=Defaulted, **{option: True})
    define(schema=Sized)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"concurrency": "sequential"}, "boot_gate and concurrency='sequential' exclude"),
        ({"per_tenant": True, "tenant": "required"}, "boot_gate and per_tenant=True exclude"),
    ],
)
def test_a_gate_neither_queues_up_nor_fans_out(options: dict[str, Any], complaint: str) -> None:
    """B113, B114, P22, P61: it would pass without having run, or run once for no tenant."""
    given = {"tenant": "system", **options}
    with pytest.raises(DefinitionError, match=complaint):
        JobDefinition(handler=handler, app_label="shop", boot_gate=True, **given)
    JobDefinition(handler=handler, app_label="shop", run_on_boot=True, **given)
