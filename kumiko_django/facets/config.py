"""``ctx.config``: values by key, from the settings or from a callable that knows the tenant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from kumiko_django.conf import Settings
from kumiko_django.exceptions import SettingsError
from kumiko_django.facets.protocols import Config, NoSuchKey
from kumiko_django.facets.request import FacetRequest
from kumiko_django.types.dotted import load_callable


class TenantConfig(Mapping[str, Any]):
    """A mapping whose missing keys are told with the tenant; it cannot be written to."""

    def __init__(self, values: Mapping[str, Any], tenant_id: str) -> None:
        self._values = values
        self._tenant_id = tenant_id

    def __repr__(self) -> str:
        return f"<config of {self._tenant_id!r}: {', '.join(map(repr, self._values))}>"

    def __getitem__(self, key: str) -> Any:
        try:
            return self._values[key]
        except KeyError:
            raise NoSuchKey(
                f"There is no config {key!r} for tenant {self._tenant_id!r}. Add it to what "
                f'KUMIKO["CONFIG"] gives, or use ctx.config.get({key!r}, default).'
            ) from None

    def get(self, key: str, default: Any = None, /) -> Any:
        """A value, or ``default``."""
        return self._values.get(key, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def make(request: FacetRequest, settings: Settings) -> Config | None:
    """``ctx.config``; None where ``CONFIG`` is not set.

    Raises:
        SettingsError: The factory gives nothing that has values by key.
    """
    source = settings.config
    if source is None or source is False:
        return None
    if not isinstance(source, Mapping):
        source = load_callable("CONFIG", source, "of a FacetRequest")(request)
    if isinstance(source, Mapping):
        return TenantConfig(source, request.tenant_id)
    if not hasattr(source, "__getitem__") or not hasattr(source, "get"):
        raise SettingsError(
            f'KUMIKO["CONFIG"] must give a mapping, or an object with get() and [], not {source!r}.'
        )
    return cast("Config", source)
