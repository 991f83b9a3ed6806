"""``ctx.secrets``: from the environment, a tenant's own before the one for all."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

from kumiko_django.conf import Settings
from kumiko_django.facets.protocols import NoSuchKey, Secrets
from kumiko_django.facets.request import FacetRequest
from kumiko_django.types.dotted import load_callable
from kumiko_django.types.ids import SYSTEM

PREFIX: Final = "KUMIKO_SECRET_"
"""Only variables that begin so are secrets of handlers: not ``DATABASE_URL``, whoever asks."""
_NAME = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")


class EnvironmentSecrets:
    """Secrets in environment variables; see :class:`Secrets`. Its repr shows none."""

    def __init__(self, tenant_id: str, environment: Mapping[str, str] | None = None) -> None:
        self._tenant_id = tenant_id
        self._environment = os.environ if environment is None else environment

    def __repr__(self) -> str:
        return f"<secrets of {self._tenant_id!r}>"

    def __getitem__(self, name: str) -> str:
        value = self.get(name)
        if value is None:
            names = " or ".join(variables(name, self._tenant_id))
            raise NoSuchKey(
                f"There is no secret {name!r} for tenant {self._tenant_id!r}. Set the environment "
                f"variable {names}."
            )
        return value

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def get(self, name: str, default: str | None = None) -> str | None:
        """The tenant's secret, else the one for all tenants, else ``default``.

        Raises:
            ValueError: The name is no name of a secret.
        """
        for variable in variables(name, self._tenant_id):
            value = self._environment.get(variable)
            if value is not None:
                return value
        return default


def variables(name: str, tenant_id: str) -> tuple[str, ...]:
    """The environment variables of a secret, in the order in which they are asked.

    A tenant's is ``KUMIKO_SECRET_<NAME>__<TENANT>``. In a tenant id, small letters become large
    ones, digits stay, and all else is written as ``_`` and two hex digits for each byte; a name has
    no two underscores in a row. So no name of one tenant reads what is another's.

    Raises:
        ValueError: The name is no name of a secret.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"The name of a secret has large letters, digits and single underscores, like "
            f"STRIPE_KEY; not {name!r}."
        )
    general = f"{PREFIX}{name}"
    if tenant_id == SYSTEM:
        return (general,)
    tenant = "".join(
        chr(byte).upper() if chr(byte) in _PLAIN else f"_{byte:02X}" for byte in tenant_id.encode()
    )
    return (f"{general}__{tenant}", general)


def make(request: FacetRequest, settings: Settings) -> Secrets | None:
    """``ctx.secrets``; None where the settings say that there is none."""
    if settings.secrets is False:
        return None
    if settings.secrets is not None:
        made: Secrets = load_callable("SECRETS", settings.secrets, "of a FacetRequest")(request)
        return made
    return EnvironmentSecrets(request.tenant_id)
