"""Jobs for every tenant: their options, their wrapper's name and how it is queued (B008, B061)."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from kumiko_django import Backoff, DefinitionError, JobDefinition
from kumiko_django.definitions import names
from kumiko_django.definitions.fan_out import (
    WRAPPER_PREFIX,
    spread_of,
    wrapped_name,
    wrapper_name,
    wrapper_of,
)

pytestmark = pytest.mark.once


def handler(payload: Any, ctx: Any) -> None:
    """Bill a tenant."""


def defined(**options: Any) -> JobDefinition:
    return JobDefinition(**{"handler": handler, "app_label": "shop", "per_tenant": True, **options})


def test_the_wrappers_name_and_back() -> None:
    """B061: a plain name gives nothing; the prefix is as long as names leave room for it."""
    assert wrapper_name("shop:job:bill") == "_perTenant:shop:job:bill"
    assert wrapped_name("_perTenant:shop:job:bill") == "shop:job:bill"
    assert wrapped_name("shop:job:bill") is None
    assert wrapped_name("shop:job:_perTenant:bill") is None
    assert len(WRAPPER_PREFIX) == names.WRAPPER_ROOM


def test_a_job_is_for_one_tenant_unless_it_says_otherwise() -> None:
    plain = JobDefinition(handler=handler)
    assert (plain.per_tenant, plain.spread) == (False, None)
    assert spread_of(plain) == dt.timedelta(0)


@pytest.mark.parametrize("spread", [90, 90.0, dt.timedelta(seconds=90)])
def test_a_spread_is_seconds_or_a_timedelta(spread: Any) -> None:
    assert spread_of(defined(spread=spread)) == dt.timedelta(seconds=90)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"per_tenant": "yes"}, "per_tenant must be True or False, not 'yes'"),
        ({"per_tenant": 1}, "per_tenant must be True or False, not 1"),
        ({"tenant": "system"}, "Drop one of the two"),
        ({"per_tenant": False, "spread": 5}, "spread= has no effect without per_tenant=True"),
        ({"spread": 0}, "spread must be seconds or a timedelta above 0"),
        ({"spread": dt.timedelta(seconds=-1)}, "spread must be seconds or a timedelta above 0"),
        ({"spread": True}, "spread must be seconds"),
        ({"spread": "1h"}, "spread must be seconds"),
        ({"spread": float("nan")}, "spread must be seconds"),
        ({"spread": dt.timedelta(days=366)}, "at most 365 days"),
    ],
)
def test_wrong_values_and_combinations_are_refused(options: dict[str, Any], part: str) -> None:
    """P10: when the definition is made, by name and with the fix."""
    with pytest.raises(DefinitionError, match=r"test_per_tenant\.handler: ") as raised:
        defined(**options)
    assert part in str(raised.value)


def test_a_name_leaves_room_for_the_wrappers() -> None:
    """The history's column holds the name of the wrapper, too."""
    longest = "a" * (names.MAX_NAME_LENGTH - len("shop:job:"))
    assert len(defined(name=longest, per_tenant=False).qualified_name) == names.MAX_NAME_LENGTH
    fits = wrapper_of(defined(name=longest[names.WRAPPER_ROOM :]))
    assert len(fits.qualified_name) == names.MAX_NAME_LENGTH
    with pytest.raises(DefinitionError, match="longer than 189 characters"):
        defined(name=longest)


def test_the_wrapper_is_queued_as_its_job_is() -> None:
    """B037, B068, B081: the job's lane, retries, backoff and priority; it belongs to no tenant."""
    job = defined(lane="api", retries=5, backoff=Backoff.fixed(7), priority="low")
    wrapper = wrapper_of(job)
    assert wrapper.qualified_name == "_perTenant:shop:job:handler"
    assert (wrapper.lane, wrapper.tenant, wrapper.priority) == ("api", "system", "low")
    assert (wrapper.attempts, wrapper.effective_backoff) == (6, Backoff.fixed(7))
    assert wrapper.job is job
    assert wrapper.app_label == "shop"
    assert wrapper_of(job) is wrapper


@pytest.mark.parametrize("retries", [None, 0, 1, 2])
def test_a_wrapper_is_tried_three_times_at_least(retries: int | None) -> None:
    """P39: a job without retries has a wrapper with some, and with a pause between them."""
    wrapper = wrapper_of(defined(retries=retries))
    assert wrapper.attempts == 3
    assert wrapper.effective_backoff == Backoff.fixed(1)
