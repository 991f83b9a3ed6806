"""Who acts, and with which roles: none that nobody gave, whatever a caller claims."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.utils.functional import SimpleLazyObject
from pytest_django import Settings

from kumiko_django import AccessDenied, SettingsError
from kumiko_django.handlers import system_user
from kumiko_django.handlers.principals import system_principal, user_principal
from kumiko_django.types.ids import SYSTEM_USER_ID
from tests.unit.handlers.kit import user

pytestmark = pytest.mark.django_db


def test_the_system_user_has_its_one_role() -> None:
    """B160, B238: id all zero, role ``system``, tenant of the run, no implicit bypass."""
    principal = system_principal("acme")

    assert (principal.id, principal.tenant_id) == (SYSTEM_USER_ID, "acme")
    assert principal.roles == {"system"}
    assert str(principal) == "the system user"


def test_a_users_roles_are_the_names_of_its_groups() -> None:
    mia = user("staff", "sales")

    for given in (mia, mia.pk, str(mia.pk), SimpleLazyObject(lambda: mia)):
        principal = user_principal(given, "acme")
        assert (principal.kind, principal.id, principal.tenant_id) == ("user", str(mia.pk), "acme")
        assert principal.roles == {"staff", "sales", "anonymous"}


def test_a_superuser_has_no_role_that_nobody_gave() -> None:
    principal = user_principal(user(is_superuser=True, is_staff=True), "acme")

    assert principal.roles == {"anonymous"}


def test_a_group_that_is_called_system_gives_nobody_that_role() -> None:
    """Whoever may edit groups would otherwise be able to make himself the system."""
    assert user_principal(user("system", "anonymous", "staff"), "acme").roles == {
        "staff", "anonymous",
    }  # fmt: skip


def test_somebody_who_is_not_logged_in_is_anonymous() -> None:
    principal = user_principal(AnonymousUser(), "acme")

    assert (principal.kind, principal.id) == ("anonymous", None)
    assert principal.roles == {"anonymous"}


@pytest.mark.parametrize(
    "key",
    [0, -1, 10**30, "", "x", "7; DROP", "9" * 500, "\0", SYSTEM_USER_ID, uuid.uuid4()],
    ids=repr,
)
def test_a_key_that_leads_to_nobody(key: Any) -> None:
    with pytest.raises(AccessDenied, match=r"There is no user .*, or the primary key of one"):
        user_principal(key, "acme")


@pytest.mark.parametrize("key", [None, True, 1.5, b"7", {}, object()], ids=repr)
def test_what_is_no_key(key: Any) -> None:
    with pytest.raises(ValueError, match="A user, or the key of one, is needed"):
        user_principal(key, "acme")


def test_who_cannot_act() -> None:
    mia = user("staff", is_active=False)

    for given in (mia, mia.pk):
        with pytest.raises(AccessDenied, match=f"User {mia.pk} is not active"):
            user_principal(given, "acme")
    with pytest.raises(AccessDenied, match="is not stored"):
        user_principal(User(username="nobody"), "acme")


# ------------------------------------------------------------------------------- roles by tenant


def roles_of(one: User, tenant_id: str) -> Any:
    return {"acme": ["owner", "system"], "globex": None, "initech": ()}[tenant_id]


def test_the_project_may_say_which_roles_hold_in_a_tenant(settings: Settings) -> None:
    settings.KUMIKO = {**settings.KUMIKO, "ROLES": f"{__name__}.roles_of"}
    mia = user("staff")

    owner, stranger, member = (user_principal(mia, t) for t in ("acme", "globex", "initech"))

    assert owner.roles == {"owner", "anonymous"}
    assert stranger.roles == member.roles == {"anonymous"}
    assert [one.is_member for one in (owner, stranger, member)] == [True, False, True]


async def later(one: User, tenant_id: str) -> list[str]:
    return ["staff"]


@pytest.mark.parametrize(
    "source",
    [lambda one, tenant: "staff", lambda one, tenant: [5], lambda one, tenant: 5, later],
    ids=["text", "numbers", "number", "async"],
)
def test_what_gives_no_roles_opens_nothing(settings: Settings, source: Any) -> None:
    settings.KUMIKO = {**settings.KUMIKO, "ROLES": source}

    with pytest.raises(SettingsError, match=r'KUMIKO\["ROLES"\] must give a list of names'):
        user_principal(user("staff"), "acme")


def test_a_setting_that_cannot_be_called(settings: Settings) -> None:
    settings.KUMIKO = {**settings.KUMIKO, "ROLES": lambda one: []}

    with pytest.raises(SettingsError, match="of a user and a tenant id"):
        user_principal(user("staff"), "acme")


@pytest.mark.parametrize("reason", ["", " ", None, 5])
def test_to_act_as_the_system_needs_a_reason(reason: Any) -> None:
    with pytest.raises(ValueError, match="needs a reason"):
        system_user(reason)
