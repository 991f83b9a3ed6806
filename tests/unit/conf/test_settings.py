"""Every key of ``KUMIKO``, right and wrong (B018, B024, B031, B035, B090)."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

import pytest
from django.test import override_settings
from pytest_django import Settings as DjangoSettings

from kumiko_django import SYSTEM, SettingsError
from kumiko_django.conf import Settings, build, get_settings
from kumiko_django.types.setting_values import shown
from tests.app.tenants import TENANT_IDS, active_tenants

pytestmark = pytest.mark.once

DAY = 86_400
KEPT_FOR_EVER = ("history_age", "audit_age")
INF, NAN = float("inf"), float("nan")
URL = "redis://localhost:6379/0"


def test_the_defaults() -> None:
    """B031, B090; B036's fixed five is only the default (P35)."""
    assert build({}) == Settings(
        redis_url=None,
        cache_alias=None,
        queue_prefix="kumiko-jobs",
        key_prefix="bull",
        completed_age=DAY,
        failed_age=7 * DAY,
        history_age=30 * DAY,
        audit_age=365 * DAY,
        lock_seconds=30.0,
        stall_budget=10,
        unknown_job_age=3_600.0,
        grace=25.0,
        concurrency=5,
        max_payload_bytes=524_288,
        tenants=None,
    )


@pytest.mark.parametrize(
    ("key", "value", "kept"),
    [
        ("REDIS_URL", URL, URL),
        ("REDIS_URL", "rediss://u:p@host/1", "rediss://u:p@host/1"),
        ("REDIS_URL", "valkey://host", "valkey://host"),
        ("REDIS_URL", "valkeys://host", "valkeys://host"),
        ("REDIS_URL", "unix:///run/redis.sock", "unix:///run/redis.sock"),
        ("CACHE_ALIAS", "redis", "redis"),
        ("QUEUE_PREFIX", "shop.jobs_2-a", "shop.jobs_2-a"),
        ("QUEUE_PREFIX", "{shop}", "{shop}"),
        ("KEY_PREFIX", "bull2", "bull2"),
        ("COMPLETED_AGE", 1, 1),
        ("COMPLETED_AGE", 60.0, 60),
        ("COMPLETED_AGE", dt.timedelta(hours=2), 7200),
        ("FAILED_AGE", dt.timedelta(days=30), 30 * DAY),
        ("FAILED_AGE", 1_000_000_000, 1_000_000_000),
        ("HISTORY_AGE", dt.timedelta(days=90), 90 * DAY),
        ("HISTORY_AGE", None, None),
        ("LOCK_SECONDS", 1, 1.0),
        ("LOCK_SECONDS", 1.5, 1.5),
        ("LOCK_SECONDS", dt.timedelta(minutes=1), 60.0),
        ("STALL_BUDGET", 1, 1),
        ("UNKNOWN_JOB_AGE", 0, 0.0),
        ("UNKNOWN_JOB_AGE", dt.timedelta(hours=2), 7200.0),
        ("GRACE", 0, 0.0),
        ("GRACE", dt.timedelta(milliseconds=500), 0.5),
        ("CONCURRENCY", 1, 1),
        ("CONCURRENCY", 500, 500),
        ("MAX_PAYLOAD_BYTES", 1, 1),
        ("TENANTS", active_tenants, active_tenants),
        ("TENANTS", "tests.app.tenants.active_tenants", "tests.app.tenants.active_tenants"),
        ("HISTORY_DATABASE", "archive", "archive"),
        ("ROW_LEVEL_SECURITY", True, True),
        ("SYSTEM_TENANT_VALUE", 0, 0),
        ("SYSTEM_TENANT_VALUE", SYSTEM, SYSTEM),
        ("SYSTEM_TENANT_VALUE", None, None),
    ],
)
def test_a_right_value(key: str, value: Any, kept: Any) -> None:
    settings = build({key: value})

    found = getattr(settings, key.lower())
    assert found == kept
    assert type(found) is type(kept)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("REDIS_URL", "", "must not be empty"),
        ("REDIS_URL", "  ", "must not be empty"),
        ("REDIS_URL", 5, "must be text, not int"),
        ("REDIS_URL", "http://host", "must begin with one of redis://.*found 'http'"),
        ("REDIS_URL", "REDIS://host", "must begin with one of"),
        ("REDIS_URL", "localhost:6379", "must begin with one of redis://.*it has no scheme"),
        ("CACHE_ALIAS", "", "must not be empty"),
        ("CACHE_ALIAS", ["redis"], "must be text, not list"),
        ("QUEUE_PREFIX", "", "must not be empty"),
        ("QUEUE_PREFIX", "a:b", "letters, digits"),
        ("QUEUE_PREFIX", "a b", "letters, digits"),
        ("QUEUE_PREFIX", "jobs\n", "letters, digits"),
        ("QUEUE_PREFIX", "größe", "letters, digits"),
        ("KEY_PREFIX", "a:b", "letters, digits"),
        ("KEY_PREFIX", 5, "must be text"),
        ("LOCK_SECONDS", 0.5, "at least 1 and at most"),
        ("LOCK_SECONDS", 0, "at least 1 and at most"),
        ("LOCK_SECONDS", INF, "at least 1 and at most"),
        ("LOCK_SECONDS", NAN, "at least 1 and at most"),
        ("LOCK_SECONDS", 10**400, "at least 1 and at most"),
        ("LOCK_SECONDS", "30", "must be seconds"),
        ("LOCK_SECONDS", True, "must be seconds"),
        ("GRACE", -1, "at least 0 and at most"),
        ("GRACE", INF, "at least 0 and at most"),
        ("GRACE", dt.timedelta(seconds=-1), "at least 0 and at most"),
        ("CONCURRENCY", 0, "whole number of at least 1"),
        ("CONCURRENCY", -5, "whole number of at least 1"),
        ("CONCURRENCY", 2.0, "whole number of at least 1"),
        ("CONCURRENCY", "5", "whole number of at least 1"),
        ("CONCURRENCY", True, "whole number of at least 1"),
        ("MAX_PAYLOAD_BYTES", 0, "whole number of at least 1"),
        ("MAX_PAYLOAD_BYTES", 1.5, "whole number of at least 1"),
        ("TENANTS", ["acme"], "must be a callable that gives the active tenant ids"),
        ("TENANTS", 5, "must be a callable"),
        ("TENANTS", True, "must be a callable"),
        ("HISTORY_DATABASE", "", "must not be empty"),
        ("HISTORY_DATABASE", ["archive"], "must be text, not list"),
        ("ROW_LEVEL_SECURITY", "yes", "must be True or False"),
        ("ROW_LEVEL_SECURITY", 1, "must be True or False"),
        ("SYSTEM_TENANT_VALUE", "", "text, a whole number or a UUID, or None for NULL"),
        ("SYSTEM_TENANT_VALUE", True, "text, a whole number or a UUID"),
    ],
)
def test_a_wrong_value_is_refused_by_key(key: str, value: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        build({key: value})

    assert f'KUMIKO["{key}"]' in str(caught.value)


@pytest.mark.parametrize("key", ["COMPLETED_AGE", "FAILED_AGE", "HISTORY_AGE"])
@pytest.mark.parametrize(
    "value",
    [
        0, -1, 1.5, NAN, INF, "60", True, [60], 10**10,
        dt.timedelta(0), dt.timedelta(seconds=-1), dt.timedelta(seconds=1.5),
    ],
    ids=str,
)  # fmt: skip
def test_an_age_is_a_whole_number_of_seconds_above_zero(key: str, value: Any) -> None:
    """B024: named with the key and the bad value."""
    with pytest.raises(SettingsError) as caught:
        build({key: value})

    assert f'KUMIKO["{key}"] must be a whole number of seconds above 0' in str(caught.value)
    assert shown(value) in str(caught.value)


@pytest.mark.parametrize(
    "field",
    [field for field in dataclasses.fields(Settings) if field.name not in KEPT_FOR_EVER],
    ids=lambda field: field.name,
)
def test_none_is_the_same_as_not_set(field: Any) -> None:
    """B024: for every key but those of which "for ever" is a value."""
    assert build({field.name.upper(): None}) == Settings()


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("REDIS_ULR", "unknown key 'REDIS_ULR'. Did you mean 'REDIS_URL'"),
        ("redis_url", "Did you mean 'REDIS_URL'"),
        ("QUEUE_PREFX", "Did you mean 'QUEUE_PREFIX'"),
        ("TENANT", "Did you mean 'TENANTS'"),
        ("Concurrency", "Did you mean 'CONCURRENCY'"),
        ("X", "Known keys: AUDIT_AGE, CACHE_ALIAS, COMPLETED_AGE, CONCURRENCY"),
        (5, "unknown key 5"),
        ("OUTBOX", "unknown key 'OUTBOX'"),
    ],
)
def test_an_unknown_key_is_answered_with_the_nearest(key: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        build({key: None})


@pytest.mark.parametrize("raw", [None, [], "REDIS_URL", 5, [("REDIS_URL", URL)]])
def test_only_a_dict_is_taken(raw: Any) -> None:
    with pytest.raises(SettingsError, match=f"KUMIKO must be a dict, not {type(raw).__name__}"):
        build(raw)


def test_both_addresses_are_refused_and_one_that_is_none_is_not_there() -> None:
    with pytest.raises(SettingsError, match=r'REDIS_URL"\] or KUMIKO\["CACHE_ALIAS"\], not both'):
        build({"REDIS_URL": URL, "CACHE_ALIAS": "redis"})

    assert build({"REDIS_URL": None, "CACHE_ALIAS": "redis"}).cache_alias == "redis"
    assert build({"REDIS_URL": URL, "CACHE_ALIAS": None}).redis_url == URL


@pytest.mark.parametrize("value", ["redis://u:hunter2@host/0", b"redis://u:hunter2@host/0"])
def test_no_message_and_no_repr_shows_the_password(value: Any) -> None:
    """P38: a settings object stands in every traceback that shows local variables."""
    text = "http://u:hunter2@host" if isinstance(value, str) else value

    with pytest.raises(SettingsError) as caught:
        build({"REDIS_URL": text})

    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(build({"REDIS_URL": "redis://u:hunter2@host/0"}))


def test_settings_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        build({}).concurrency = 9  # type: ignore[misc]


def test_an_override_holds_while_it_lasts(settings: DjangoSettings) -> None:
    before = get_settings()

    with override_settings(KUMIKO={**settings.KUMIKO, "CONCURRENCY": 77}):
        assert get_settings().concurrency == 77
        with override_settings(KUMIKO={}):
            assert get_settings() == Settings()
    assert get_settings() == before
    assert get_settings() is get_settings(), "it is built once"


def test_a_wrong_override_is_told_each_time_and_then_forgotten(settings: DjangoSettings) -> None:
    before = get_settings()

    with override_settings(KUMIKO={"CONCURRENCY": 0}):
        for _ in range(2):
            with pytest.raises(SettingsError, match="CONCURRENCY"):
                get_settings()
    assert get_settings() == before


def test_without_the_setting_everything_has_its_default(settings: DjangoSettings) -> None:
    kept = settings.KUMIKO
    del settings.KUMIKO

    assert get_settings() == Settings()

    settings.KUMIKO = kept
    assert get_settings() != Settings()


def test_another_setting_changes_nothing() -> None:
    before = get_settings()

    with override_settings(DEBUG=True):
        assert get_settings() is before


# -------------------------------------------------------------------------------------- TENANTS


class Tenants:
    def __call__(self) -> list[int]:
        return [1, 2]

    def listed(self) -> tuple[str, ...]:
        return ("a",)


def no_tenants() -> list[str]:
    return []


def with_default(active: bool = True) -> list[str]:
    return ["acme"] if active else []


@pytest.mark.parametrize(
    ("tenants", "ids"),
    [
        (active_tenants, list(TENANT_IDS)),
        ("tests.app.tenants.active_tenants", list(TENANT_IDS)),
        (Tenants(), ["1", "2"]),
        (Tenants().listed, ["a"]),
        (f"{__name__}.no_tenants", []),
        (lambda: iter(["x"]), ["x"]),
        (with_default, ["acme"]),
        (None, []),
    ],
)
def test_the_active_tenants(tenants: Any, ids: list[str]) -> None:
    """B022, B023, B245."""
    settings = build({"TENANTS": tenants})

    assert settings.active_tenants() == ids
    assert settings.tenancy_enabled is (tenants is not None)


@pytest.mark.parametrize(
    ("tenants", "message"),
    [
        ("", "cannot be imported"),
        ("acme", "cannot be imported"),
        ("tests.app.nothing.active", "cannot be imported: No module named"),
        ("tests.app.tenants.nothing", "cannot be imported"),
        ("tests.app.tenants:active_tenants", "cannot be imported"),
        ("tests.app.tenants.TENANT_IDS", "must be a callable without arguments"),
        (lambda request: [], "callable without arguments: missing a required argument: 'request'"),
        (Tenants.listed, "callable without arguments: missing a required argument: 'self'"),
    ],
)
def test_wrong_tenants_are_told_when_they_are_asked_for(tenants: Any, message: str) -> None:
    """B245: not earlier: a dotted path may lead to a module that needs loaded apps."""
    settings = build({"TENANTS": tenants})

    for ask in (settings.tenants_callable, settings.active_tenants):
        with pytest.raises(SettingsError, match=message) as caught:
            ask()
        assert 'KUMIKO["TENANTS"]' in str(caught.value)


@pytest.mark.parametrize("answer", ["acme", b"acme", None, 5])
def test_tenants_that_give_no_list_are_refused(answer: Any) -> None:
    """A text would be taken letter by letter."""
    with pytest.raises(SettingsError, match="must give a list of the active tenant ids"):
        build({"TENANTS": lambda: answer}).active_tenants()
