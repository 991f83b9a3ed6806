"""``--tenant`` of the commands: how SYSTEM is said on a command line, and who might be meant."""

from __future__ import annotations

import difflib
from typing import Final

from kumiko_django.conf import get_settings
from kumiko_django.exceptions import SettingsError
from kumiko_django.tenancy.directory import active_tenants
from kumiko_django.types.ids import SYSTEM

SYSTEM_WORDS: Final = ("system", "SYSTEM")
"""How the admin and Python code call what belongs to no tenant."""


def tenant_of(text: str) -> str:
    """The tenant that ``--tenant`` names: ``system`` is SYSTEM, unless a tenant is called so.

    Raises:
        SettingsError: ``TENANTS`` cannot be asked, so that the word could mean either.
    """
    if text not in SYSTEM_WORDS:
        return text
    try:
        is_tenant = get_settings().tenancy_enabled and text in active_tenants()
    except Exception as error:
        raise SettingsError(
            f"Whether {text!r} is a tenant cannot be told: {_not_asked(error)} Give {SYSTEM} for "
            "what belongs to none."
        ) from error
    return text if is_tenant else SYSTEM


def doubt_about(tenant_id: str) -> str | None:
    """Why a tenant may be a slip of the pen: it is not active. None where there is no doubt."""
    if tenant_id == SYSTEM or not get_settings().tenancy_enabled:
        return None
    try:
        tenants = active_tenants()
    except Exception as error:  # noqa: BLE001  (the host's code; nothing hangs on the answer)
        return f"Whether {tenant_id!r} is an active tenant cannot be told: {_not_asked(error)}"
    if tenant_id in tenants:
        return None
    near = difflib.get_close_matches(tenant_id, tenants, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f'{tenant_id!r} is none of the active tenants (KUMIKO["TENANTS"]).{hint}'


def _not_asked(error: Exception) -> str:
    return f'KUMIKO["TENANTS"] raised {type(error).__name__}.'
