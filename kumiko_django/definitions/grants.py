"""``escape_hatches``: what a job may do that others may not, and the reason why (design 7)."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from django.apps import apps

from kumiko_django.exceptions import DefinitionError

if TYPE_CHECKING:
    from kumiko_django.definitions.job import JobDefinition

Grant: TypeAlias = Literal["unsafe_raw", "global_writes", "cross_tenant_reads", "system_identity"]
KNOWN_GRANTS: Final[tuple[Grant, ...]] = (
    "unsafe_raw", "global_writes", "cross_tenant_reads", "system_identity",
)  # fmt: skip
WORKING_GRANTS: Final[frozenset[Grant]] = frozenset(KNOWN_GRANTS)
"""Those that open something; the others are unknown until they do."""
MAX_REASON_LENGTH: Final = 500
"""In characters."""


class Grants(Mapping[str, str]):
    """The reasons by grant. It cannot be changed: nobody gives himself a grant at run time."""

    __slots__ = ("_pairs",)

    def __init__(self, pairs: tuple[tuple[str, str], ...] = ()) -> None:
        self._pairs = pairs

    def __repr__(self) -> str:
        return repr(dict(self._pairs))

    def __getitem__(self, grant: str) -> str:
        for name, reason in self._pairs:
            if name == grant:
                return reason
        raise KeyError(grant)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)


def check_escape_hatches(given: object, where: str) -> Grants:
    """``escape_hatches=`` as grants with their reasons.

    Raises:
        DefinitionError: It is no mapping, names an unknown grant, or gives no reason.
    """
    if isinstance(given, Grants):
        return given
    if not isinstance(given, Mapping):
        raise DefinitionError(
            f"{where}: escape_hatches must map grants to reasons, such as "
            f'{{"system_identity": "sends letters in the name of users"}}, not {given!r}.'
        )
    return Grants(tuple(_check_grant(name, reason, where) for name, reason in given.items()))


def _check_grant(name: object, reason: object, where: str) -> tuple[str, str]:
    if name not in WORKING_GRANTS:
        known = sorted(WORKING_GRANTS)
        near = difflib.get_close_matches(str(name), known, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(known)}."
        raise DefinitionError(f"{where}: escape_hatches has the unknown grant {name!r}. {hint}")
    if not isinstance(reason, str) or not reason.strip():
        raise DefinitionError(
            f"{where}: escape_hatches[{name!r}] needs a reason that says why, not {reason!r}."
        )
    if len(reason.strip()) > MAX_REASON_LENGTH:
        raise DefinitionError(
            f"{where}: the reason of escape_hatches[{name!r}] is longer than {MAX_REASON_LENGTH} "
            "characters."
        )
    return str(name), reason.strip()


def is_system_scoped(definition: JobDefinition) -> bool:
    """Whether the job's app works for the system itself (B016).

    It is a property of the app: ``kumiko_system_scope = True`` on its ``AppConfig``.
    """
    for config in apps.get_app_configs():
        if config.label == definition.app_label:
            return getattr(config, "kumiko_system_scope", False) is True
    return False
