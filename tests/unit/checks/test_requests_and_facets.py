"""System checks of the request middleware and of the facets, each id by one test, with a hint."""

from __future__ import annotations

from typing import Any

import pytest
from django.core import checks
from django.core.checks import CheckMessage
from pytest_django import Settings

from kumiko_django import checks as kumiko_checks
from kumiko_django.tenancy.checks import MIDDLEWARE

pytestmark = pytest.mark.once

AUTHENTICATION = "django.contrib.auth.middleware.AuthenticationMiddleware"


def tenant_of(request: Any) -> str:
    raise AssertionError("a check asks nobody")


async def zone_of(tenant_id: str) -> str:
    return "Asia/Tokyo"


def found() -> list[CheckMessage]:
    return [m for m in checks.run_checks(tags=[kumiko_checks.TAG]) if m.id and not m.is_silenced()]


def the_only_one(check_id: str) -> CheckMessage:
    messages = found()
    assert [message.id for message in messages] == [check_id]
    assert messages[0].hint
    return messages[0]


def test_a_middleware_that_knows_tenant_and_user_is_fine(settings: Settings) -> None:
    settings.MIDDLEWARE = [AUTHENTICATION, MIDDLEWARE]
    settings.KUMIKO = {**settings.KUMIKO, "REQUEST_TENANT": f"{__name__}.tenant_of"}

    assert found() == []


def test_w010_views_have_no_tenant(settings: Settings) -> None:
    settings.MIDDLEWARE = [AUTHENTICATION, MIDDLEWARE]

    message = the_only_one("kumiko.W010")

    assert isinstance(message, checks.Warning)
    assert "views have none" in message.msg
    settings.KUMIKO = {**settings.KUMIKO, "TENANTS": None}
    assert found() == [], "without tenancy there is nothing to say"


@pytest.mark.parametrize(
    ("middleware", "tenancy", "part"),
    [
        ([AUTHENTICATION], True, "is not in MIDDLEWARE."),
        ([AUTHENTICATION, MIDDLEWARE], False, 'KUMIKO["TENANTS"] is not set.'),
        ([], False, 'is not in MIDDLEWARE and KUMIKO["TENANTS"] is not set.'),
    ],
)
def test_w011_a_tenant_that_nobody_asks_for(
    middleware: list[str], tenancy: bool, part: str, settings: Settings
) -> None:
    settings.MIDDLEWARE = middleware
    changed = {"REQUEST_TENANT": tenant_of} | ({} if tenancy else {"TENANTS": None})
    settings.KUMIKO = {**settings.KUMIKO, **changed}

    message = the_only_one("kumiko.W011")

    assert isinstance(message, checks.Warning)
    assert message.msg.endswith(part)


@pytest.mark.parametrize("authentication", ["AuthenticationMiddleware", "RemoteUserMiddleware"])
def test_e010_the_middleware_comes_too_early(authentication: str, settings: Settings) -> None:
    """Every request would be anonymous: nothing that a user starts could write personal data."""
    late = f"django.contrib.auth.middleware.{authentication}"
    settings.MIDDLEWARE = [MIDDLEWARE, late]
    settings.KUMIKO = {**settings.KUMIKO, "REQUEST_TENANT": tenant_of}

    message = the_only_one("kumiko.E010")

    assert isinstance(message, checks.Error)
    assert late in message.msg
    settings.MIDDLEWARE = [late, MIDDLEWARE]
    assert found() == []


def test_w013_marks_that_nothing_looks_at(settings: Settings) -> None:
    """B170: without the middleware no request is anonymous."""
    settings.SILENCED_SYSTEM_CHECKS = []
    settings.MIDDLEWARE = [AUTHENTICATION]

    message = the_only_one("kumiko.W013")

    assert isinstance(message, checks.Warning)
    settings.MIDDLEWARE = [AUTHENTICATION, MIDDLEWARE]
    assert "kumiko.W013" not in [each.id for each in found()]


@pytest.mark.parametrize("broken", ["tests.app.nothing.tenant", lambda: "acme"])
def test_e011_a_tenant_that_cannot_be_asked_for(broken: Any, settings: Settings) -> None:
    settings.MIDDLEWARE = [AUTHENTICATION, MIDDLEWARE]
    settings.KUMIKO = {**settings.KUMIKO, "REQUEST_TENANT": broken}

    message = the_only_one("kumiko.E011")

    assert isinstance(message, checks.Error)
    assert 'KUMIKO["REQUEST_TENANT"]' in message.msg


@pytest.mark.parametrize(
    ("key", "value", "part"),
    [
        ("FILES", "tests.app.nothing.files", "cannot be imported"),
        ("FILES_STORAGE", "nowhere", "nowhere"),
        ("DERIVATIVES", {"preview": "tests.app.nothing.preview"}, "cannot be imported"),
        ("DERIVATIVES", lambda: None, "of a FacetRequest"),
        ("NOTIFY", "tests.app.tenants.TENANT_IDS", "must be a callable of a FacetRequest"),
        ("CONFIG", lambda: None, "of a FacetRequest"),
        ("SECRETS", "secrets", "cannot be imported"),
        ("TIME_ZONE", "Europe/Berlin", "It must be a callable of the tenant id, or the dotted"),
        ("DERIVATIVES", {"p": 5}, 'KUMIKO["DERIVATIVES"]["p"] must be a callable of the bytes of'),
        ("DERIVATIVES", {"p": {"key": "pw"}}, "the dotted path to one; something of the type dict"),
        ("TIME_ZONE", zone_of, "nobody awaits it"),
    ],
)
def test_e012_a_facet_that_cannot_be_made(
    key: str, value: Any, part: str, settings: Settings
) -> None:
    """Told before the first job asks for it."""
    settings.KUMIKO = {**settings.KUMIKO, key: value}

    message = the_only_one("kumiko.E012")

    assert isinstance(message, checks.Error)
    assert f'KUMIKO["{key}"]' in message.msg
    assert part in message.msg


def test_e012_asks_no_factory(settings: Settings) -> None:
    def factory(request: Any) -> Any:
        raise AssertionError("asked")

    settings.KUMIKO = {
        **settings.KUMIKO,
        **dict.fromkeys(("FILES", "DERIVATIVES", "NOTIFY", "CONFIG", "SECRETS"), factory),
        "FILES_STORAGE": "nowhere",  # of no interest to a factory of the project
        "TIME_ZONE": factory,
    }
    assert found() == []
    off = {"FILES": False, "NOTIFY": False, "SECRETS": False, "CONFIG": {"a": 1}, "DERIVATIVES": {}}
    settings.KUMIKO = {**settings.KUMIKO, **off}
    assert found() == []
