"""System checks: each id is raised here by one test, with a hint (design 2; B024, B026)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core import checks
from django.core.checks import CheckMessage
from django.core.checks.registry import registry as check_registry
from django.core.management import call_command
from django.db import connections
from pytest_django import Settings

from kumiko_django import Backoff, JobDefinition
from kumiko_django import checks as kumiko_checks
from kumiko_django.definitions.registry import registry
from kumiko_django.worker.exit_codes import ExitCode
from tests.helpers.processes import run_django

pytestmark = pytest.mark.once


def found() -> list[CheckMessage]:
    """Everything that our checks say now."""
    return [m for m in checks.run_checks(tags=[kumiko_checks.TAG]) if m.id and not m.is_silenced()]


def the_only_one(check_id: str) -> CheckMessage:
    messages = found()
    assert [message.id for message in messages] == [check_id]
    (message,) = messages
    assert message.hint
    assert message.msg
    return message


def test_the_settings_of_the_suite_are_clean() -> None:
    assert found() == []
    call_command("check", fail_level="DEBUG")


def test_manage_py_check_is_clean() -> None:
    """In a process of its own, as a host runs it."""
    done = run_django("check", "--fail-level", "DEBUG")

    assert done.returncode == 0, done.stderr
    assert "no issues" in done.stdout


@pytest.mark.parametrize(
    ("kumiko", "part"),
    [
        ({"REDIS_ULR": "redis://localhost"}, "Did you mean 'REDIS_URL'"),
        ({"REDIS_URL": "redis://localhost", "FAILED_AGE": 0}, 'KUMIKO["FAILED_AGE"]'),
        ({"REDIS_URL": "redis://localhost", "CACHE_ALIAS": "redis"}, "not both"),
        ("redis://localhost", "KUMIKO must be a dict"),
    ],
)
def test_e001_the_setting_is_wrong(settings: Settings, kumiko: Any, part: str) -> None:
    settings.KUMIKO = kumiko

    message = the_only_one("kumiko.E001")

    assert isinstance(message, checks.Error)
    assert part in message.msg
    settings.KUMIKO = {}  # the fixture that cleans up reads it


@pytest.mark.parametrize(
    ("kumiko", "part"),
    [
        ({}, "does not know where Redis is"),
        ({"CACHE_ALIAS": "nothing"}, "is not in CACHES (there are: default, redis)"),
        ({"CACHE_ALIAS": "default"}, "not a Redis cache"),
    ],
)
def test_e002_no_redis_is_named(settings: Settings, kumiko: Any, part: str) -> None:
    settings.KUMIKO = kumiko

    message = the_only_one("kumiko.E002")

    assert isinstance(message, checks.Error)
    assert part in message.msg


@pytest.mark.parametrize("key", ["METER", "TRACER"])
@pytest.mark.parametrize("value", ["tests.app.nothing.meter", "tests.settings.DEBUG"])
def test_e007_where_metrics_go_cannot_be_had(settings: Settings, key: str, value: str) -> None:
    settings.KUMIKO = {**settings.KUMIKO, key: value}

    message = the_only_one("kumiko.E007")

    assert isinstance(message, checks.Error)
    assert f'KUMIKO["{key}"]' in message.msg


@pytest.mark.parametrize("tenants", ["tests.app.nothing.active", lambda request: []])
def test_e003_the_tenants_cannot_be_asked_for(settings: Settings, tenants: Any) -> None:
    settings.KUMIKO = {**settings.KUMIKO, "TENANTS": tenants}

    message = the_only_one("kumiko.E003")

    assert isinstance(message, checks.Error)
    assert 'KUMIKO["TENANTS"]' in message.msg


def test_e003_does_not_ask_for_the_tenants(settings: Settings) -> None:
    """That may be a query, and a check makes none."""

    def tenants() -> list[str]:
        raise AssertionError("asked")

    settings.KUMIKO = {**settings.KUMIKO, "TENANTS": tenants}

    assert found() == []


def test_w001_failed_jobs_leave_first(settings: Settings) -> None:
    settings.KUMIKO = {**settings.KUMIKO, "COMPLETED_AGE": 100, "FAILED_AGE": 99}

    assert isinstance(the_only_one("kumiko.W001"), checks.Warning)

    settings.KUMIKO = {**settings.KUMIKO, "COMPLETED_AGE": 100, "FAILED_AGE": 100}
    assert found() == []


class FakeConnection:
    """What the check looks at: it must not connect."""

    def __init__(self, vendor: str, **settings_dict: Any) -> None:
        self.vendor = vendor
        self.settings_dict = settings_dict


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put another database in the place of the default one, for the checks."""

    def use(vendor: str, **settings_dict: Any) -> None:
        connection = FakeConnection(vendor, **settings_dict)
        monkeypatch.setattr(kumiko_checks, "connections", {"default": connection})

    return use


def test_e004_times_without_a_zone(settings: Settings) -> None:
    """SQLite would refuse every record, PostgreSQL take them and the commands fail."""
    settings.USE_TZ = False

    assert isinstance(the_only_one("kumiko.E004"), checks.Error)


def test_e005_a_database_that_never_commits(database: Callable[..., None]) -> None:
    """Every record would be written, dropped beside the queue, and gone."""
    database("postgresql", NAME="shop", AUTOCOMMIT=False)

    message = the_only_one("kumiko.E005")

    assert isinstance(message, checks.Error)
    assert "'default'" in message.msg
    database("postgresql", NAME="shop", AUTOCOMMIT=True)
    assert found() == []


@pytest.mark.parametrize(
    "options",
    [{}, None, {"transaction_mode": "DEFERRED"}, {"timeout": 20}, {"transaction_mode": None}],
)
def test_w002_a_sqlite_that_does_not_begin_as_a_writer(
    database: Callable[..., None], options: Any
) -> None:
    database("sqlite", NAME=Path("/srv/db.sqlite3"), OPTIONS=options)

    message = the_only_one("kumiko.W002")

    assert isinstance(message, checks.Warning)
    assert "transaction_mode" in (message.hint or "")


@pytest.mark.parametrize(
    ("vendor", "name", "options"),
    [
        ("sqlite", "/srv/db.sqlite3", {"transaction_mode": "IMMEDIATE"}),
        ("sqlite", "/srv/db.sqlite3", {"transaction_mode": "immediate"}),
        ("sqlite", "/srv/db.sqlite3", {"transaction_mode": "EXCLUSIVE"}),
        ("sqlite", ":memory:", {}),
        ("sqlite", "file:memorydb?mode=memory&cache=shared", {}),
        ("postgresql", "shop", {}),
        ("mysql", "shop", {}),
    ],
)
def test_w002_says_nothing_about_others(
    database: Callable[..., None], vendor: str, name: str, options: dict[str, Any]
) -> None:
    """One process alone has an in-memory database; Django takes the mode in any case."""
    database(vendor, NAME=name, OPTIONS=options)

    assert found() == []


def test_w002_does_not_connect(settings: Settings) -> None:
    connections["default"].close()

    kumiko_checks.check_sqlite()

    assert connections["default"].connection is None


@pytest.fixture
def per_tenant() -> Iterator[Callable[..., None]]:
    """Define jobs for the length of the test: ``per_tenant(retries=3, ...)``."""
    with registry.isolated():

        def define(**options: Any) -> None:
            values = {"per_tenant": True, "app_label": "testapp", "name": "bill", **options}
            registry.register(JobDefinition(handler=lambda payload, ctx: None, **values))

        yield define


@pytest.mark.parametrize(
    ("retries", "backoff", "window_ms"),
    [
        (3, Backoff.exponential(1), 7000),
        (3, Backoff.fixed(1), 3000),
        (3, None, 3000),
        (4, Backoff.exponential(1, max_seconds=2), 7000),
        (2, Backoff.fixed(10, jitter=0.1), 22_000),
        (None, None, 2000),
    ],
)
def test_e006_retries_that_outlive_the_children(
    per_tenant: Callable[..., None],
    settings: Settings,
    retries: int | None,
    backoff: Backoff | None,
    window_ms: int,
) -> None:
    """B025, B089, P36, P42: strictly smaller; and a wrapper is tried three times at least (P39)."""
    per_tenant(retries=retries, backoff=backoff)
    settings.KUMIKO = {**settings.KUMIKO, "COMPLETED_AGE": window_ms // 1000}

    message = the_only_one("kumiko.E006")

    assert isinstance(message, checks.Error)
    assert "testapp:job:bill" in message.msg
    assert f"its retries may take {window_ms // 1000:,} s, while" in message.msg
    assert f"stay in the queue for {window_ms // 1000:,} s only" in message.msg
    assert 'KUMIKO["COMPLETED_AGE"]' in (message.hint or "")
    assert "backoff" in (message.hint or "")
    settings.KUMIKO = {**settings.KUMIKO, "COMPLETED_AGE": window_ms // 1000 + 1}
    assert found() == []


def test_e006_is_about_jobs_for_every_tenant(
    per_tenant: Callable[..., None], settings: Settings
) -> None:
    """B025: a window one millisecond shorter is fine, and so is a job that is for one tenant."""
    per_tenant(retries=3, backoff=Backoff.fixed(3.333))
    per_tenant(name="other", per_tenant=False, retries=2, backoff=Backoff.fixed(500))
    settings.KUMIKO = {**settings.KUMIKO, "COMPLETED_AGE": 10}

    assert found() == []


def test_e006_keeps_a_worker_from_starting() -> None:
    """B026: before any client of Redis is made, which here nobody could reach."""
    env = {
        "DJANGO_SETTINGS_MODULE": "tests.integration.worker.extra.settings",
        "KUMIKO_COMPLETED_AGE": "2",
        "REDIS_URL": "redis://127.0.0.1:1/0",
    }

    done = run_django("runjobs", env=env)

    assert done.returncode == ExitCode.CONFIGURATION
    assert "kumiko.E006" in done.stderr
    assert "Redis" not in done.stderr


def test_w003_nobody_knows_the_tenants(per_tenant: Callable[..., None], settings: Settings) -> None:
    """B062: told at the start; a project may carry an app whose jobs it does not use."""
    per_tenant()
    settings.KUMIKO = {**settings.KUMIKO, "TENANTS": None}

    message = the_only_one("kumiko.W003")

    assert isinstance(message, checks.Warning)
    assert "testapp:job:bill" in message.msg
    assert 'KUMIKO["TENANTS"]' in (message.hint or "")


def test_each_id_stands_in_the_code_once_and_in_this_module() -> None:
    """Two checks with one id cannot be silenced apart."""
    code = Path(kumiko_checks.__file__).read_text(encoding="utf-8")
    ids = re.findall(r'id="(kumiko\.[EW]\d{3})"', code)
    tested = set(re.findall(r'the_only_one\("(kumiko\.[EW]\d{3})"\)', Path(__file__).read_text()))

    assert ids
    assert len(ids) == len(set(ids))
    assert set(ids) == tested


def test_they_are_registered_under_our_tag_and_once() -> None:
    ours: list[Any] = [
        check
        for check in check_registry.get_checks()
        if getattr(check, "__module__", "") == kumiko_checks.__name__
    ]

    assert sorted(check.__name__ for check in ours) == [
        "check_autocommit", "check_per_tenant", "check_settings", "check_sqlite",
        "check_time_zones",
    ]  # fmt: skip
    assert all(kumiko_checks.TAG in check.tags for check in ours)
