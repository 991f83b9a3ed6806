"""Who acts: the system, a user in a tenant, or nobody known; and which roles that one has.

Roles are never taken from what a caller gives, only from the user's groups or ``KUMIKO["ROLES"]``.
There is no way around them: neither the system nor a superuser has roles that nobody gave.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

from django.contrib.auth import get_user_model
from django.core.exceptions import ObjectDoesNotExist, ValidationError

from kumiko_django.conf import get_settings
from kumiko_django.exceptions import AccessDenied, SettingsError
from kumiko_django.types.dotted import load_callable
from kumiko_django.types.ids import SYSTEM_USER_ID
from kumiko_django.types.setting_values import shown

SYSTEM_ROLE: Final = "system"
ANONYMOUS_ROLE: Final = "anonymous"
RESERVED_ROLES: Final = frozenset({SYSTEM_ROLE, ANONYMOUS_ROLE})
"""A group of such a name gives nobody the role."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who acts, in a tenant.

    Attributes:
        kind: ``system``, ``user`` or ``anonymous``.
        id: The user's key as text; the all-zero UUID for the system; None for nobody known.
        tenant_id: The tenant in which the roles hold.
        roles: What it may be called by.
        is_member: Whether a user belongs to the tenant.
    """

    kind: Literal["system", "user", "anonymous"]
    id: str | None
    tenant_id: str
    roles: frozenset[str]
    is_member: bool = True

    def __str__(self) -> str:
        if self.kind == "user":
            return f"user {self.id}"
        return "the system user" if self.kind == "system" else "an anonymous user"


@dataclass(frozen=True, slots=True)
class SystemUser:
    """A claim to act as the system, with the reason; made by :func:`system_user`."""

    reason: str


def system_user(reason: str) -> SystemUser:
    """Give this as ``user=`` to act as the system outside of jobs, in a command for example.

    Each use is recorded with the reason.

    Raises:
        ValueError: The reason is missing.
    """
    if not isinstance(reason, str) or not reason.strip():
        raise ValueError("system_user needs a reason, e.g. system_user('nightly import').")
    return SystemUser(reason.strip())


UserArgument: TypeAlias = Any
"""A user of the project's user model, the key of one, or an ``AnonymousUser``."""


def system_principal(tenant_id: str) -> Principal:
    """The system user of a tenant: the role ``system`` and no other (B238)."""
    return Principal("system", SYSTEM_USER_ID, tenant_id, frozenset({SYSTEM_ROLE}))


def anonymous_principal(tenant_id: str) -> Principal:
    """Somebody who is not known."""
    return Principal("anonymous", None, tenant_id, frozenset({ANONYMOUS_ROLE}))


def user_principal(user: UserArgument, tenant_id: str) -> Principal:
    """The principal of a user, or of the key of one. Asks the database.

    Raises:
        AccessDenied: There is no such user, or it is not active.
        ValueError: It is neither a user nor a key.
        SettingsError: ``ROLES`` cannot be called, or gives no roles.
    """
    if not hasattr(user, "pk"):
        user = _load(user)
    elif not getattr(user, "is_authenticated", True):
        return anonymous_principal(tenant_id)
    if user.pk is None:
        raise AccessDenied(f"{user!r} is not stored, so nobody can act as it.")
    if not getattr(user, "is_active", True):
        raise AccessDenied(f"User {user.pk} is not active.")
    roles = _roles_of(user, tenant_id)
    held = frozenset(roles or ()) - RESERVED_ROLES | {ANONYMOUS_ROLE}
    return Principal("user", str(user.pk), tenant_id, held, roles is not None)


def _load(key: Any) -> Any:
    if isinstance(key, bool) or not isinstance(key, str | int | UUID):
        raise ValueError(  # noqa: TRY004  (as triggered_by=, whose callers catch one kind)
            f"A user, or the key of one, is needed, not {type(key).__name__}."
        )
    try:
        return get_user_model()._default_manager.get(pk=str(key))
    except (ObjectDoesNotExist, ValueError, ValidationError, OverflowError):
        raise AccessDenied(
            f"There is no user {str(key)[:100]!r}. Give a user, or the primary key of one: a "
            "user name is no key."
        ) from None


def _roles_of(user: Any, tenant_id: str) -> Iterable[str] | None:
    source = get_settings().roles
    if source is None:
        groups = getattr(user, "groups", None)
        return () if groups is None else list(groups.values_list("name", flat=True))
    ask = load_callable("ROLES", source, "of a user and a tenant id", arguments=2)
    given = ask(user, tenant_id)
    if given is None:
        return None
    if inspect.iscoroutine(given):
        given.close()
    elif isinstance(given, Iterable) and not isinstance(given, str | bytes):
        roles = list(given)
        if all(isinstance(role, str) for role in roles):
            return roles
    raise SettingsError(
        f'KUMIKO["ROLES"] must give a list of names, or None for no member, not {shown(given)}.'
    )
