"""The keys of ``KUMIKO`` for requests, facets and handlers, right and wrong."""

from __future__ import annotations

from typing import Any

import pytest

from kumiko_django import SettingsError
from kumiko_django.conf import build
from kumiko_django.observability import InMemoryMeter
from kumiko_django.types.dotted import load_callable

pytestmark = pytest.mark.once

CALLABLES = (
    "REQUEST_TENANT", "FILES", "DERIVATIVES", "NOTIFY", "CONFIG", "SECRETS", "TIME_ZONE", "ROLES",
    "TENANT_DATABASE",
)  # fmt: skip


def function(argument: Any) -> Any:
    return argument


@pytest.mark.parametrize("key", CALLABLES)
def test_a_callable_or_its_path(key: str) -> None:
    assert getattr(build({}), key.lower()) is None
    assert getattr(build({key: None}), key.lower()) is None
    for value in (function, f"{__name__}.function"):
        kept = getattr(build({key: value}), key.lower())
        assert kept is value
        assert load_callable(key, kept, "of something") is function


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("FILES", False),
        ("NOTIFY", False),
        ("SECRETS", False),
        ("CONFIG", {"a": 1}),
        ("CONFIG", {}),
        ("DERIVATIVES", {"preview": function}),
        ("FILES_STORAGE", "private"),
        ("JOBS_WRITE_AS", "system"),
        ("JOBS_WRITE_AS", "caller"),
    ],
)
def test_what_else_is_right(key: str, value: Any) -> None:
    assert getattr(build({key: value}), key.lower()) == value


@pytest.mark.parametrize(
    ("key", "value", "part"),
    [
        *((key, 5, "must be a callable") for key in CALLABLES),
        *((key, True, "must be a callable") for key in CALLABLES),
        *((key, ["a"], "dotted path to one") for key in CALLABLES),
        ("REQUEST_TENANT", False, "of the request"),
        ("TENANT_DATABASE", {"acme": "eu"}, "of the tenant id"),
        ("TIME_ZONE", False, "of the tenant id"),
        ("TIME_ZONE", {}, "of the tenant id"),
        ("CONFIG", False, "a dict"),
        ("FILES", {}, "False for no such facet"),
        ("ROLES", False, "of a user and a tenant id"),
        ("JOBS_WRITE_AS", "user", "must be 'system' or 'caller', not 'user'"),
        ("JOBS_WRITE_AS", True, "must be 'system' or 'caller', not True"),
        ("FILES_STORAGE", "", "must not be empty"),
        ("FILES_STORAGE", False, "must be text"),
    ],
)
def test_what_is_wrong_is_refused_by_key(key: str, value: Any, part: str) -> None:
    with pytest.raises(SettingsError, match=part) as caught:
        build({key: value})
    assert f'KUMIKO["{key}"]' in str(caught.value)


@pytest.mark.parametrize(
    "key", ["METER", "TRACER", "TENANTS", "GRACE", "CONCURRENCY", "ROLES", "JOBS_WRITE_AS"]
)
def test_a_value_that_may_have_a_password_is_not_shown(key: str) -> None:
    """Of what is neither plain nor a function only the type is told."""
    with pytest.raises(SettingsError, match="not something of the type dict") as caught:
        build({key: {"url": "redis://:pa55word@host"}})
    assert "pa55word" not in str(caught.value)
    shown = repr(build({"CONFIG": {"key": "pa55word"}, "METER": InMemoryMeter()}))
    assert "pa55word" not in shown


def test_a_builtin_without_a_signature_is_taken_at_its_word() -> None:
    assert load_callable("CONFIG", dict, "of something") is dict
