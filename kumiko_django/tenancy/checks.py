"""System checks of the middleware and of ``REQUEST_TENANT``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from django.conf import settings as django_settings
from django.core import checks
from django.core.checks import CheckMessage, register

from kumiko_django.conf import Settings, get_settings
from kumiko_django.exceptions import SettingsError
from kumiko_django.privacy.marks import any_marks
from kumiko_django.types.dotted import load_callable

MIDDLEWARE: Final = "kumiko_django.tenancy.middleware.RequestScopeMiddleware"
_AUTHENTICATION: Final = (
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.auth.middleware.RemoteUserMiddleware",
    "django.contrib.auth.middleware.PersistentRemoteUserMiddleware",
)


@register("kumiko")
def check_requests(app_configs: Sequence[Any] | None = None, **_: Any) -> list[CheckMessage]:
    """Requests get a tenant, and the middleware knows the user."""
    try:
        settings = get_settings()
    except SettingsError:
        return []  # told by check_settings
    installed: list[str] = list(django_settings.MIDDLEWARE)
    found = list(_check_request_tenant(settings, installed))
    if MIDDLEWARE in installed and settings.tenancy_enabled and settings.request_tenant is None:
        found.append(
            checks.Warning(
                "RequestScopeMiddleware is installed, and nothing says which tenant a request is "
                "for: views have none.",
                hint='Set KUMIKO["REQUEST_TENANT"] to a callable of the request that gives its '
                "tenant id, or None.",
                id="kumiko.W010",
            )
        )
    late = [name for name in _AUTHENTICATION if name in _behind(installed)]
    if late:
        found.append(
            checks.Error(
                f"RequestScopeMiddleware comes before {late[0]}, so that to it nobody has ever "
                "logged in.",
                hint="Put RequestScopeMiddleware behind it in MIDDLEWARE.",
                id="kumiko.E010",
            )
        )
    return found


@register("kumiko")
def check_personal_data(app_configs: Sequence[Any] | None = None, **_: Any) -> list[CheckMessage]:
    """Where models mark personal fields, somebody knows who began a request."""
    if MIDDLEWARE in django_settings.MIDDLEWARE or not any_marks():
        return []
    return [
        checks.Warning(
            "Models mark personal fields, and RequestScopeMiddleware is not installed: nothing "
            "knows which requests are anonymous, so nothing is kept from writing them.",
            hint=f"Add {MIDDLEWARE!r} to MIDDLEWARE, behind AuthenticationMiddleware.",
            id="kumiko.W013",
        )
    ]


def _behind(installed: list[str]) -> list[str]:
    return installed[installed.index(MIDDLEWARE) :] if MIDDLEWARE in installed else []


def _check_request_tenant(settings: Settings, installed: list[str]) -> Iterator[CheckMessage]:
    if settings.request_tenant is None:
        return
    try:
        load_callable("REQUEST_TENANT", settings.request_tenant, "of the request")
    except SettingsError as error:
        yield checks.Error(
            str(error), hint="Give a callable of the request, or its path.", id="kumiko.E011"
        )
    missing = []
    if MIDDLEWARE not in installed:
        missing.append(f"{MIDDLEWARE!r} is not in MIDDLEWARE")
    if not settings.tenancy_enabled:
        missing.append('KUMIKO["TENANTS"] is not set')
    if missing:
        yield checks.Warning(
            f'KUMIKO["REQUEST_TENANT"] has no effect: {" and ".join(missing)}.',
            hint="Add what is missing, or drop REQUEST_TENANT.",
            id="kumiko.W011",
        )
