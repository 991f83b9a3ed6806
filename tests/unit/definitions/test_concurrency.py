"""The options of modes and caps, right and wrong (P10)."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from kumiko_django import DefinitionError, Dispatched, JobDefinition
from kumiko_django.admission.rules import rules_for
from kumiko_django.definitions.concurrency import window_ms

pytestmark = pytest.mark.once

NAME = "shop:job:handler"


def handler(payload: Any, ctx: Any) -> None:
    """Never called."""


def defined(**options: Any) -> JobDefinition:
    return JobDefinition(**{"handler": handler, "app_label": "shop", **options})


def test_the_defaults() -> None:
    """B003, B050: nothing holds a job back."""
    definition = defined()
    assert (definition.concurrency, definition.concurrency_scope) == ("parallel", "tenant")
    assert definition.max_per_tenant is definition.debounce is definition.throttle is None
    assert rules_for(definition, "acme") is None


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"concurrency": "paralel"}, "concurrency='paralel' is unknown; use 'parallel', 'skip'"),
        ({"concurrency_scope": "all"}, "concurrency_scope='all' is unknown; use 'tenant' or"),
        ({"concurrency_scope": "global"}, "has no effect without concurrency="),
        ({"concurrency": "debounce"}, "needs its window; add debounce=30"),
        ({"concurrency": "throttle"}, "needs its window; add throttle=30"),
        ({"debounce": 5}, "debounce= has no effect without concurrency='debounce'"),
        ({"concurrency": "skip", "throttle": 5}, "throttle= has no effect without"),
        ({"concurrency": "debounce", "debounce": 0}, "debounce must be seconds or a timedelta"),
        ({"concurrency": "debounce", "debounce": True}, "debounce must be seconds"),
        ({"concurrency": "debounce", "debounce": float("inf")}, "debounce must be seconds"),
        ({"concurrency": "throttle", "throttle": -1}, "throttle must be seconds"),
        ({"concurrency": "throttle", "throttle": "5"}, "throttle must be seconds"),
        ({"max_wait": 5}, "max_wait= bounds debounce=, which is not given"),
        ({"concurrency": "debounce", "debounce": 5, "max_wait": 4}, "must be at least debounce=5"),
        ({"concurrency": "debounce", "debounce": 5, "max_wait": 0}, "max_wait must be seconds"),
        ({"max_per_tenant": 0}, "max_per_tenant must be a whole number from 1"),
        ({"max_per_tenant": -1}, "max_per_tenant must be"),
        ({"max_per_tenant": True}, "max_per_tenant must be"),
        ({"max_per_tenant": 1.5}, "max_per_tenant must be"),
        ({"max_per_tenant": 1_000_001}, "to 1,000,000, not 1000001"),
    ],
)
def test_what_is_refused(options: dict[str, Any], told: str) -> None:
    """B004, B009, B050, P10: by name, with the fix."""
    with pytest.raises(DefinitionError) as refusal:
        defined(**options)
    assert told in str(refusal.value)
    assert "handler" in str(refusal.value)


def test_windows_are_seconds_or_timedeltas() -> None:
    definition = defined(
        concurrency="debounce", debounce=dt.timedelta(seconds=2), max_wait=0.0025 + 2
    )
    rules = rules_for(definition, "acme")
    assert rules is not None
    assert (rules.window_ms, rules.max_wait_ms) == (2000, 2002)
    assert window_ms(defined(concurrency="throttle", throttle=0.0001)) == 1


def test_keys_are_the_tenants_own_unless_global() -> None:
    """P02, P18, P19: they know neither lane nor priority."""
    own = rules_for(defined(concurrency="skip", lane="api"), "acme")
    everybody = rules_for(defined(concurrency="skip", concurrency_scope="global"), "acme")
    assert own is not None
    assert everybody is not None
    assert (own.mode_key, everybody.mode_key) == (f"{NAME}:acme", NAME)


def test_a_cap_is_the_tenants_whatever_the_scope() -> None:
    rules = rules_for(
        defined(concurrency="sequential", concurrency_scope="global", max_per_tenant=3), "acme"
    )
    assert rules is not None
    assert (rules.cap_key, rules.cap) == (f"{NAME}:acme", 3)
    assert (rules.slot_key, rules.slots) == (f"one:{NAME}", 1)


@pytest.mark.parametrize(
    ("status", "accepted"),
    [
        ("queued", True), ("parked", True), ("debounced", True), ("replaced", True),
        ("skipped", False), ("throttled", False),
    ],
)  # fmt: skip
def test_an_answer_is_true_when_work_was_accepted(status: Any, accepted: bool) -> None:
    """P09"""
    assert bool(Dispatched(status, "id")) is accepted
